package worker

import (
	"sync"

	"github.com/outmill/outmill"
)

// Registry knows the records whose handling is under way in this instance,
// also after their lease was lost: none of them is delivered a second time
// before the first handling has ended.
type Registry struct {
	mu      sync.Mutex
	running map[outmill.WorkItemID]struct{}
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{running: map[outmill.WorkItemID]struct{}{}}
}

// enter reports false if the record is being handled already.
func (r *Registry) enter(id outmill.WorkItemID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.running[id]; ok {
		return false
	}
	r.running[id] = struct{}{}
	return true
}

func (r *Registry) leave(id outmill.WorkItemID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, id)
}
