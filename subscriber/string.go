package subscriber

// String is the subscriber's name in Watermill's metrics, and in the metadata that its
// poison queue adds. It is the same for the subscribers of all stores.
func (s *Subscriber) String() string { return "outmill" }
