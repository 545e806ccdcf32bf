package storekit

// AfterCommit are functions that run after the commit of a transaction, in their order. The zero value has none. Use it from one
// goroutine at a time.
type AfterCommit []func()

// OnCommit adds a function.
func (a *AfterCommit) OnCommit(fn func()) { *a = append(*a, fn) }

// Committed runs the functions.
func (a AfterCommit) Committed() {
	for _, fn := range a {
		fn()
	}
}
