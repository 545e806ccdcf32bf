package kafka

// String is the publisher's name in Watermill's metrics. It differs from kafka.Publisher,
// the name of watermill-kafka's publisher.
func (p *Publisher) String() string { return "outmill.kafka" }
