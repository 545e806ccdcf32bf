package kafka

import (
	"hash/fnv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// keylessBytes is the number of bytes after which messages without a key change to another
// partition.
const keylessBytes = 64 << 10

// partitioner chooses the same partition for a key as sarama's default partitioner, so that
// producers of both kinds may share a topic. Messages without a key stay with one partition
// for a while, to make batches large, and prefer partitions with few queued records.
func partitioner() kgo.Partitioner {
	return kgo.UniformBytesPartitioner(keylessBytes, true, true, partitionOf)
}

var partitionOf = kgo.SaramaCompatHasher(fnv1a)

func fnv1a(key []byte) uint32 {
	h := fnv.New32a()
	// Write of a hash never returns an error.
	_, _ = h.Write(key)
	return h.Sum32()
}
