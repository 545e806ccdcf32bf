package worker

import "sync"

// maxWoken limits the list of topics. If more topics are woken, the next claim covers all
// topics.
const maxWoken = 1000

// woken collects the topics in which, according to the store, records may have become
// claimable. It has its own mutex, because goroutines that append call it.
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

// reads sets the function that selects the topics to collect.
func (w *woken) reads(read func(topic string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read = read
}

// add is the callback for roles.Waker.
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

// take calls fn for each collected topic, or all if there were too many, and clears the
// list.
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
