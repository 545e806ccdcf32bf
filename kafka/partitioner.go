package kafka

import (
	"hash/fnv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// keylessBytes is how much goes to one partition before messages without a key
// move on to another one.
const keylessBytes = 64 << 10

// partitioner puts a key where sarama's default partitioner puts it, so that
// producers of both kinds may share a topic. Messages without a key stay with
// one partition for a while, for the sake of large batches, and prefer
// partitions with little to do.
func partitioner() kgo.Partitioner {
	return kgo.UniformBytesPartitioner(keylessBytes, true, true, partitionOf)
}

var partitionOf = kgo.SaramaCompatHasher(fnv1a)

func fnv1a(key []byte) uint32 {
	h := fnv.New32a()
	// It never returns an error.
	_, _ = h.Write(key)
	return h.Sum32()
}
