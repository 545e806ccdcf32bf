package publisher

// String is the publisher's name in Watermill's metrics: the same for the publishers of all
// stores.
func (p *Publisher) String() string { return "outmill" }

func (v view) String() string { return v.publisher.String() }
