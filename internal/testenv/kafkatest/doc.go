// Package kafkatest provides Kafka for tests.
//
// A fake broker that speaks Kafka's protocol runs in the test's process and is always
// available. As a real broker a test uses, in this order, the broker that
// OUTMILL_TEST_KAFKA_URL names, a broker that listens at 127.0.0.1:9092, and a broker that
// the machine's Java and Maven can download and start. Otherwise the test is skipped with
// one line that names the remedy.
//
// Tests never share a topic: see Topic and CreateTopic.
package kafkatest
