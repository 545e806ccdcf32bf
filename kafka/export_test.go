package kafka

// PartitionOf is for the test that compares it with sarama's.
var PartitionOf = partitionOf

var RecordOf = recordOf
