package kafka

// String is the publisher's name in Watermill's metrics, where that of
// watermill-kafka is kafka.Publisher.
func (p *Publisher) String() string { return "outmill.kafka" }
