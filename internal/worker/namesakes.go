package worker

import (
	"reflect"
	"slices"
	"sync"

	"github.com/outmill/outmill"
)

// reportName is what a store keeps one report for. A database that the program has opened twice has two
// stores: then the report of a worker of one hides that of the other, until that registers again.
type reportName struct {
	store       any
	group, name string
}

func reportNameOf(queue outmill.Queue, group, name string) reportName {
	return reportName{innermost(queue), group, name}
}

// innermost is the store behind its wrappers, or nil if it cannot be compared.
func innermost(queue outmill.Queue) any {
	var store any = queue
	// The bound ends the loop for a wrapper that wraps itself.
	for range 100 {
		wrapper, ok := store.(interface{ Unwrap() outmill.Store })
		if !ok {
			break
		}
		store = wrapper.Unwrap()
	}
	if !reflect.ValueOf(store).Comparable() {
		return nil
	}
	return store
}

// namesakes has workers of this process by their names. Several have one name, such as the subscribers of a
// group, because the default is that of the process; each registration replaces the report of the others, so
// each reports for all of them. The zero value has none. It is safe for concurrent use.
type namesakes[W comparable] struct {
	mu  sync.Mutex
	all map[reportName][]W
}

func (n *namesakes[W]) add(name reportName, w W) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[reportName][]W{}
	}
	n.all[name] = append(slices.Clip(n.all[name]), w)
}

// remove reports whether the worker was the last one of its name. It reports false for one that is not there.
func (n *namesakes[W]) remove(name reportName, w W) (last bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.Index(n.all[name], w)
	if i < 0 {
		return false
	}
	left := slices.Delete(slices.Clone(n.all[name]), i, i+1)
	if n.all[name] = left; len(left) == 0 {
		delete(n.all, name)
		return true
	}
	return false
}

// of returns the workers of a name. Nobody changes the list.
func (n *namesakes[W]) of(name reportName) []W {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all[name]
}
