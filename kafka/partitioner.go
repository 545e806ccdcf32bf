package kafka

import (
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

// fnv1a is the hash of hash/fnv, which allocates.
func fnv1a(key []byte) uint32 {
	const offset, prime = 2166136261, 16777619
	h := uint32(offset)
	for _, c := range key {
		h = (h ^ uint32(c)) * prime
	}
	return h
}
