package subscriber

// Repeats returns how often in a row a record of this subscriber has come again without an attempt,
// of the record with the longest row, or 0 if no row is too long. A row is too long from its tenth
// time on if something is in the handler's way, such as a conflict of sagas, and from its 100th time
// on if the handler puts the record off by outmill.Snooze or the subscriber gives it back. The
// subscriber also reports such records to the store, for outmill doctor and outmill why.
func (s *Subscriber) Repeats() int { return s.repeats.Most() }
