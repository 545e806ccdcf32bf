package subscriber

// String is the subscriber's name in Watermill's metrics, and in the metadata
// that its poison queue adds: the same for every subscriber, whatever its store.
func (s *Subscriber) String() string { return "outmill" }
