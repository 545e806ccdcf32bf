package worker

import "sync"

// maxWoken bounds the topics that wait for a claim; with more of them, all do.
const maxWoken = 1000

// woken gathers the topics of which the store says that records may have become
// claimable. It has a mutex of its own, because goroutines that append call it.
type woken struct {
	signal chan struct{}

	mu     sync.Mutex
	read   func(topic string) bool
	topics map[string]struct{}
	all    bool
}

func newWoken() *woken {
	return &woken{signal: make(chan struct{}, 1), topics: map[string]struct{}{}, read: func(string) bool { return false }}
}

// reads says which topics are of interest from now on.
func (w *woken) reads(read func(topic string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read = read
}

// add is what a store calls: see storekit.Waker.
func (w *woken) add(topic string) {
	w.mu.Lock()
	switch {
	case w.all || topic != "" && !w.read(topic):
		w.mu.Unlock()
		return
	case topic == "" || len(w.topics) >= maxWoken:
		w.all = true
		clear(w.topics)
	default:
		w.topics[topic] = struct{}{}
	}
	w.mu.Unlock()
	signal(w.signal)
}

// take calls fn for each topic, or all for all of them, and forgets them.
func (w *woken) take(fn func(topic string), all func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all {
		all()
	}
	for topic := range w.topics {
		fn(topic)
	}
	w.all = false
	clear(w.topics)
}
