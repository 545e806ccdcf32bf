// Package kafka publishes to Kafka in batches. Its [Publisher] is a Watermill
// publisher and an [storekit.BatchPublisher], which is what a forwarder wants.
//
// It takes watermill-kafka's PublisherConfig and writes what its
// DefaultMarshaler writes: the message's UUID in the header
// _watermill_message_uuid, metadata as headers, the payload as the value. So
// watermill-kafka's Subscriber reads it, and either end can be replaced on its
// own. A marshaler of your own is used as it is; of the message that it makes,
// topic, key, value, headers and timestamp are honoured, and the partition is
// not (sarama's default partitioner does not look at it either).
//
// # Keys
//
// The record's key is what the marshaler sets, else the outbox key
// ([outmill.SetKey]). A key goes to the partition where sarama's default
// partitioner puts it, so that this publisher may share a topic with producers
// that use sarama; it is another one than Java's producers choose. Messages
// without a key are spread over the partitions.
//
// # Delivery
//
// Each message is acknowledged by all replicas in sync (acks=all) and sent
// idempotently: a request that is repeated because its answer was lost is
// written once. What fails in between is tried again within
// [Config.DeliveryTimeout]; then a *[storekit.PublishError] names what was given
// up, and the caller may publish it again. It may then arrive twice, if its
// fate was unknown.
//
// Messages of one topic and key arrive in the order of the call. When one fails
// for a reason that may pass, the later ones of its key fail with it, and what
// a broker might still write late is shut out by what this publisher sends
// afterwards.
//
// # How it differs from watermill-kafka's publisher
//
// That one sends message by message and waits for each; its defaults are
// acks=1 (sarama's WaitForLocal: the leader alone, so that a message that was
// acknowledged can be lost with the leader), no idempotence (a retry can write
// a message twice), and no key (no order). The forwarder works with it too, or
// with any other Watermill publisher: it then runs many lanes at a time, and
// the guarantees are those of that publisher and its settings.
//
// Calls on one Publisher share requests. It is made to be used by many
// goroutines, and is slower when each of them has its own.
package kafka
