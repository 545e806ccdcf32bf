// Package kafkatest provides Kafka for tests.
//
// A fake broker that speaks Kafka's protocol runs in the test's process and is
// always there. For the real one a test takes, in this order, the broker that
// OUTMILL_TEST_KAFKA_URL names, one that listens at 127.0.0.1:9092, one that the
// machine's Java and Maven can download and start; otherwise the test is skipped
// with one line that says what to do.
//
// Tests never share a topic: see Topic and CreateTopic.
package kafkatest
