package roles

import (
	"cmp"
	"slices"

	"github.com/outmill/outmill"
)

// PauseList has the pauses of a store at one moment. It does not change, and is safe for
// concurrent use. A nil list has no pauses.
type PauseList struct {
	generation int64
	pauses     []PauseInfo
	scopes     map[pauseAt]int64
	numbers    map[int64]struct{}
	// tenants says that a tenant is paused; parts, that a key or a tenant is.
	tenants, parts bool
}

// pauseAt is a scope in one of several stores.
type pauseAt struct {
	store string
	PauseScope
}

// NewPauseList makes a list of pauses, which it sorts. generation grows with each change of
// the pauses.
func NewPauseList(generation int64, pauses []PauseInfo) *PauseList {
	l := &PauseList{generation: generation, pauses: pauses, scopes: map[pauseAt]int64{}, numbers: map[int64]struct{}{}}
	slices.SortFunc(pauses, comparePauses)
	for _, p := range pauses {
		l.scopes[pauseAt{p.Store, p.PauseScope}] = p.Number
		l.numbers[p.Number] = struct{}{}
		l.tenants = l.tenants || p.TenantID != ""
		l.parts = l.parts || p.TenantID != "" || p.Key != ""
	}
	return l
}

func comparePauses(a, b PauseInfo) int {
	return cmp.Or(cmp.Compare(a.Store, b.Store), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Topic, b.Topic),
		cmp.Compare(a.Key, b.Key), cmp.Compare(a.TenantID, b.TenantID))
}

// All returns the pauses, sorted as Pauses.Paused returns them. Do not change the list.
func (l *PauseList) All() []PauseInfo {
	if l == nil {
		return nil
	}
	return l.pauses
}

// Generation grows with each change of the pauses.
func (l *PauseList) Generation() int64 {
	if l == nil {
		return 0
	}
	return l.generation
}

// Empty reports whether nothing is paused.
func (l *PauseList) Empty() bool { return l == nil || len(l.pauses) == 0 }

// Has reports whether the pause with this number is in the list.
func (l *PauseList) Has(number int64) bool {
	if l == nil {
		return false
	}
	_, paused := l.numbers[number]
	return paused
}

// HasTenants reports whether a tenant is paused.
func (l *PauseList) HasTenants() bool { return l != nil && l.tenants }

// HasParts reports whether a key or a tenant is paused, so that a claim must compare the
// records of a topic with the pauses.
func (l *PauseList) HasParts() bool { return l != nil && l.parts }

// Topic reports whether the whole topic is paused for the group.
func (l *PauseList) Topic(group, topic string) bool {
	return l.find("", PauseScope{Group: group}, PauseScope{Topic: topic}, PauseScope{Group: group, Topic: topic}) != 0
}

// Key returns the number of a pause of the key; 0 if there is none, or if key is "".
func (l *PauseList) Key(group, topic, key string) int64 {
	if key == "" {
		return 0
	}
	return l.find("", PauseScope{Topic: topic, Key: key}, PauseScope{Group: group, Topic: topic, Key: key})
}

// Tenant returns the number of a pause of the tenant; 0 if there is none, or if tenant is "".
func (l *PauseList) Tenant(group, topic, tenant string) int64 {
	return l.tenantOf("", group, topic, tenant)
}

func (l *PauseList) tenantOf(store, group, topic, tenant string) int64 {
	if tenant == "" || !l.HasTenants() {
		return 0
	}
	return l.find(store, PauseScope{TenantID: tenant}, PauseScope{Group: group, TenantID: tenant},
		PauseScope{Topic: topic, TenantID: tenant}, PauseScope{Group: group, Topic: topic, TenantID: tenant})
}

// Of returns the number of a pause of the key or of the tenant; 0 if there is none.
func (l *PauseList) Of(group, topic, key, tenant string) int64 {
	if number := l.Key(group, topic, key); number != 0 {
		return number
	}
	return l.Tenant(group, topic, tenant)
}

// Covers reports whether a pause covers the record: its group, topic, key or tenant. It does
// not know whether an earlier record of the key is paused.
func (l *PauseList) Covers(r *outmill.Record) bool {
	if l.Empty() {
		return false
	}
	whole := l.find(r.Store, PauseScope{Group: r.Group}, PauseScope{Topic: r.Topic}, PauseScope{Group: r.Group, Topic: r.Topic},
		PauseScope{Topic: r.Topic, Key: r.Key}, PauseScope{Group: r.Group, Topic: r.Topic, Key: r.Key})
	return whole != 0 || l.tenantOf(r.Store, r.Group, r.Topic, r.TenantID) != 0
}

func (l *PauseList) find(store string, scopes ...PauseScope) int64 {
	if l.Empty() {
		return 0
	}
	for _, scope := range scopes {
		if number := l.scopes[pauseAt{store, scope}]; number != 0 {
			return number
		}
	}
	return 0
}
