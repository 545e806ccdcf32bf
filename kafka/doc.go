// Package kafka publishes to Kafka in batches. Its [Publisher] is a Watermill publisher and
// a [storekit.BatchPublisher], to which a forwarder publishes whole batches.
//
// It writes the same records as watermill-kafka's DefaultMarshaler: the message's UUID in the
// header _watermill_message_uuid, metadata as headers, the payload as the value. A nil payload is
// a tombstone, and an empty one is not. Metadata with the name of that header is sent as
// outmill-escaped-_watermill_message_uuid, which subscriber.RestoreHeaders takes back. So
// watermill-kafka's Subscriber can read them, and either end can be replaced separately.
// You can set your own [Marshaler]. A program that has a configuration of watermill-kafka
// passes it to package kafka/watermillkafka.
//
// # Keys
//
// The record's key is the marshaler's key if it sets one, otherwise the outbox key
// ([outmill.SetKey]). A key goes to the same partition as with sarama's default
// partitioner, so that this publisher may share a topic with producers that use sarama.
// Java's producers choose a different partition. Messages without a key are spread over the
// partitions.
//
// # Delivery
//
// Each message is acknowledged by all replicas in sync (acks=all) and sent idempotently: if
// a request is repeated because its answer was lost, Kafka writes it once. The publisher
// retries transient errors within [Config.DeliveryTimeout]; then a *[storekit.PublishError]
// lists the failed messages, and the caller may publish them again. A message whose result
// was unknown may then arrive twice.
//
// Messages of one topic and key arrive in the order of the call. When a message fails for a
// transient reason, the later messages of its key fail with it. A late write of the failed
// message cannot follow messages that this publisher sends afterwards, because the broker
// fences it.
//
// # How it differs from watermill-kafka's publisher
//
// That publisher sends message by message and waits for each. Its defaults are acks=1
// (sarama's WaitForLocal: only the leader acknowledges, so an acknowledged message can be
// lost with the leader), no idempotence (a retry can write a message twice), and no key (no
// order). The forwarder works with it too, and with any other Watermill publisher: it then
// publishes in several lanes at a time, and the guarantees are those of that publisher and
// its settings.
//
// Calls of one Publisher share requests, so share one Publisher among all goroutines; one
// for each goroutine is slower.
package kafka
