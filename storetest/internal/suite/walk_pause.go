package suite

import (
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// pauses returns the store's role, or nil. Walks in steps make no pauses: they mix orders, and
// where a claim without an order has set keyed records aside, no order is promised until all are
// back.
func (w *Walk) pauses() roles.Pauses {
	pauses, ok := outmill.As[roles.Pauses](w.Store)
	if !ok || w.Queue.inSteps {
		return nil
	}
	return pauses
}

// endPauses ends what former walks left.
func (w *Walk) endPauses() {
	pauses := w.pauses()
	if pauses == nil {
		return
	}
	list, err := pauses.Paused(w.Ctx())
	w.NoError(err, "Paused")
	for _, p := range list {
		_, err := pauses.Resume(w.Ctx(), p.PauseScope)
		w.NoError(err, "Resume")
	}
}

func (w *Walk) scope(t *rapid.T) roles.PauseScope {
	scope := Pick(t, "scope",
		roles.PauseScope{Group: "one"}, roles.PauseScope{Topic: w.prefix + "a"}, roles.PauseScope{Topic: w.prefix + "a", Key: "k"},
		roles.PauseScope{TenantID: "acme"}, roles.PauseScope{Topic: w.prefix + "a", TenantID: "acme"},
		roles.PauseScope{Group: "two", Topic: w.prefix + "b", Key: "K"}, roles.PauseScope{Group: "one", TenantID: "acme"})
	return scope
}

func (w *Walk) pause(t *rapid.T) {
	pauses := w.pauses()
	if pauses == nil {
		t.Skip("the walk makes no pauses")
	}
	scope := w.scope(t)
	w.NoError(pauses.Pause(w.Ctx(), scope, Worker, ""), "Pause")
	if !slices.Contains(w.Queue.pauses, scope) {
		w.Queue.pauses = append(w.Queue.pauses, scope)
	}
	w.Queue.hasPaused = true
}

func (w *Walk) resume(t *rapid.T) {
	pauses := w.pauses()
	if pauses == nil || len(w.Queue.pauses) == 0 {
		t.Skip("nothing is paused")
	}
	scope := Pick(t, "pause", append(w.Queue.pauses, w.scope(t))...)
	ended, err := pauses.Resume(w.Ctx(), scope)
	w.NoError(err, "Resume")
	require.Equal(w.T, slices.Contains(w.Queue.pauses, scope), ended, "there was a pause of %s", scope)
	w.Queue.pauses = slices.DeleteFunc(slices.Clone(w.Queue.pauses), func(s roles.PauseScope) bool { return s == scope })
}

// paused reports whether a pause covers the item.
func (m *model) paused(it *Item) bool {
	return slices.ContainsFunc(m.pauses, func(s roles.PauseScope) bool {
		return (s.Group == "" || s.Group == it.Group) && (s.Topic == "" || s.Topic == it.topic) && (s.Key == "" || s.Key == it.key) &&
			(s.TenantID == "" || s.TenantID == it.tenant)
	})
}
