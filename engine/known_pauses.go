package engine

import (
	"sync/atomic"

	"github.com/outmill/outmill/roles"
)

// knownPauses has the pauses that the process read last. The zero value has none. It is safe
// for concurrent use.
type knownPauses struct {
	list atomic.Pointer[roles.PauseList]
}

// load returns the list, or nil.
func (k *knownPauses) load() *roles.PauseList { return k.list.Load() }

// keep keeps the list if it is newer than the known one.
func (k *knownPauses) keep(list *roles.PauseList) {
	for known := k.list.Load(); known == nil || known.Generation() < list.Generation(); known = k.list.Load() {
		if k.list.CompareAndSwap(known, list) {
			return
		}
	}
}

// renew keeps the list that a call has read, which knew the list known when it began. It keeps a
// list with a smaller generation too, unless another call has kept one since: then the database
// is older than before, because it was restored.
func (k *knownPauses) renew(known, list *roles.PauseList) {
	if list != known && !k.list.CompareAndSwap(known, list) {
		k.keep(list)
	}
}
