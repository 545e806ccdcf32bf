package kafka

import (
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

// partitionOf takes the FNV-1a hash as a signed number and its remainder's
// absolute value, as sarama does: neither Java's hash nor its way with signs.
func partitionOf(key []byte, partitions int) int {
	p := int32(fnv1a(key)) % int32(partitions)
	if p < 0 {
		p = -p
	}
	return int(p)
}

func fnv1a(key []byte) uint32 {
	const offset, prime = 2166136261, 16777619
	h := uint32(offset)
	for _, b := range key {
		h ^= uint32(b)
		h *= prime
	}
	return h
}
