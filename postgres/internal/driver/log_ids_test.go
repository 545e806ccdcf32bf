package driver

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
)

// receipt is what an append was told: the groups that read its topic then, and the chains that they had.
type receipt struct {
	event  int64
	groups []string
	of     map[string]int64
	waits  int64
}

func (w *registrations) receipt() receipt {
	c := logChainsOf(w.readings, orders)
	r := receipt{event: w.events, of: c.of, waits: c.waiting}
	for group := range c.readings {
		r.groups = append(r.groups, group)
	}
	slices.Sort(r.groups)
	return r
}

// check compares the ids that a row of the receipt has now with those that it names.
func (r receipt) check(t *rapid.T, history []logReading) {
	c := logChainsOf(history, orders)
	row := outmill.NewWorkItemID()
	ids := map[outmill.WorkItemID]bool{}
	for _, chain := range c.known {
		id := c.masks[chain].id(chain, row, r.event)
		require.False(t, ids[id], "a row has one id for two chains")
		ids[id] = true
	}
	if r.waits != noChain {
		require.Equal(t, row, c.masks[r.waits].id(r.waits, row, r.event), "what waits has its own id")
		return
	}
	for n, group := range r.groups {
		want := row
		if n > 0 {
			want = outmill.CopyID(row, group)
		}
		require.Equal(t, want, c.masks[r.of[group]].id(r.of[group], row, r.event), "%s of %v", group, r.groups)
	}
}

// TestLogIDs goes on with the registrations after appends, whose ids stay what their receipts said.
func TestLogIDs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &registrations{}
		var receipts []receipt
		group := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		living := func(t *rapid.T) int { return drawLiving(t, w.readings) }
		t.Repeat(map[string]func(*rapid.T){
			"append":   func(*rapid.T) { receipts = append(receipts, w.receipt()) },
			"register": func(t *rapid.T) { w.begin(group.Draw(t, "group"), rapid.Bool().Draw(t, "takes")) },
			"other":    func(t *rapid.T) { w.begin(group.Draw(t, "group"), true, "others") },
			"take": func(t *rapid.T) {
				if i := living(t); w.readings[i].takes == 0 {
					w.take(i)
				}
			},
			"drop": func(t *rapid.T) { w.drop(group.Draw(t, "group")) },
			"end":  func(t *rapid.T) { w.end(living(t)) },
			"sweep": func(t *rapid.T) {
				for i, r := range w.readings {
					if r.ended > 0 && r.swept == 0 {
						w.sweep(i)
					}
				}
			},
			"": func(t *rapid.T) {
				for _, r := range receipts {
					r.check(t, w.readings)
				}
			},
		})
	})
}

// TestLogIDs_Heirs is what waits instead of a chain whose rest was swept: the ids of that chain lead to it.
func TestLogIDs_Heirs(t *testing.T) {
	t.Parallel()
	w := &registrations{}
	i := w.begin("a", true)
	w.end(i)
	row := outmill.NewWorkItemID()
	at := w.events
	w.sweep(i)
	w.begin("b", true)
	h := &logHistory{readings: w.readings}
	require.Equal(t, []int64{0, 3}, h.chains(orders).ofRow(row, at, row))
}
