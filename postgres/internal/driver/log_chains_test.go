package driver

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
)

const orders = "orders"

// registrations makes a history, an event at a time.
type registrations struct {
	readings []logReading
	events   int64
}

// drawLiving draws one of the readings that live, by its place in the list.
func drawLiving(t *rapid.T, readings []logReading) int {
	var living []int
	for i, r := range readings {
		if r.ended == 0 {
			living = append(living, i)
		}
	}
	if len(living) == 0 {
		t.Skip("nobody reads")
	}
	return rapid.SampledFrom(living).Draw(t, "reading")
}

func (r *registrations) event() int64 { r.events++; return r.events }

// begin returns the index of the new reading.
func (r *registrations) begin(group string, takes bool, topics ...string) int {
	n := r.event()
	reading := logReading{number: n, group: group, topics: outmill.Topics{Include: topics}}
	if takes {
		reading.takes = n
	}
	r.readings = append(r.readings, reading)
	return len(r.readings) - 1
}

func (r *registrations) take(i int) { r.readings[i].takes = r.event() }

func (r *registrations) end(i int) { r.readings[i].ended = r.event() }

func (r *registrations) sweep(i int) { r.readings[i].swept = r.event() }

// expire is the end of a TTL, and the sweep behind it.
func (r *registrations) expire(i int) {
	r.end(i)
	r.sweep(i)
}

func (r *registrations) drop(group string) {
	for i := range r.readings {
		if r.readings[i].group == group && r.readings[i].ended == 0 {
			r.end(i)
		}
	}
}

// TestLogChains is the table of docs/postgres-log.md.
func TestLogChains(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run     func(r *registrations)
		of      map[string]int64
		waiting int64
	}{
		"what nobody reads waits": {func(*registrations) {
		}, map[string]int64{}, 0},
		"a group of other topics leaves it waiting": {func(r *registrations) {
			r.begin("a", true, "others")
		}, map[string]int64{}, 0},
		"the first group has what waited": {func(r *registrations) {
			r.begin("a", true)
		}, map[string]int64{"a": 0}, noChain},
		"a later group begins by itself": {func(r *registrations) {
			r.begin("a", true)
			r.begin("b", true)
		}, map[string]int64{"a": 0, "b": 2}, noChain},
		"a second selection of a group changes nothing": {func(r *registrations) {
			r.begin("a", true)
			r.begin("a", true, "ord*")
		}, map[string]int64{"a": 0}, noChain},
		"the end of one of two selections changes nothing": {func(r *registrations) {
			first := r.begin("a", true)
			r.begin("a", true, "ord*")
			r.expire(first)
		}, map[string]int64{"a": 0}, noChain},
		"a dropped group gives its chain back": {func(r *registrations) {
			r.begin("a", true)
			r.drop("a")
		}, map[string]int64{}, 0},
		"the same group gets it again": {func(r *registrations) {
			r.begin("a", true)
			r.drop("a")
			r.begin("a", true)
		}, map[string]int64{"a": 0}, noChain},
		"beside another group the chain of a dropped one ends": {func(r *registrations) {
			r.begin("a", true)
			r.begin("b", true)
			r.drop("a")
		}, map[string]int64{"b": 2}, noChain},
		"and the same group begins by itself": {func(r *registrations) {
			r.begin("a", true)
			r.begin("b", true)
			r.drop("a")
			r.begin("a", true)
		}, map[string]int64{"a": 4, "b": 2}, noChain},
		"the chain of a later group passes on, too": {func(r *registrations) {
			r.begin("a", true)
			r.begin("b", true)
			r.drop("a")
			r.drop("b")
			r.begin("c", true)
		}, map[string]int64{"c": 2}, noChain},
		"what a group had not read at the end of its TTL is gone": {func(r *registrations) {
			r.expire(r.begin("a", true))
		}, map[string]int64{}, 3},
		"and the next group has what came since": {func(r *registrations) {
			r.expire(r.begin("a", true))
			r.begin("b", true)
		}, map[string]int64{"b": 3}, noChain},
		"until then it waits": {func(r *registrations) {
			r.end(r.begin("a", true))
		}, map[string]int64{}, 0},
		"a group that comes before the sweep has it": {func(r *registrations) {
			a := r.begin("a", true)
			r.end(a)
			r.begin("b", true)
			r.sweep(a)
		}, map[string]int64{"b": 0}, noChain},
		"what another group gives back is not swept": {func(r *registrations) {
			a := r.begin("a", true)
			r.end(a)
			r.begin("b", true)
			r.drop("b")
			r.sweep(a)
		}, map[string]int64{}, 0},
		"a group that holds leaves what waited, and reads nothing": {func(r *registrations) {
			r.begin("a", false)
		}, map[string]int64{}, 0},
		"beside a group that takes it has its own": {func(r *registrations) {
			r.begin("a", true)
			r.begin("b", false)
		}, map[string]int64{"a": 0, "b": 2}, noChain},
		"of two groups that hold the first one that takes gets what waits": {func(r *registrations) {
			r.begin("a", false)
			b := r.begin("b", false)
			r.take(b)
		}, map[string]int64{"a": 1, "b": 0}, noChain},
		"a group that holds by a second selection begins with the first": {func(r *registrations) {
			a := r.begin("a", false)
			r.begin("a", false, "ord*")
			r.expire(a)
			r.begin("b", true)
		}, map[string]int64{"a": 1, "b": 0}, noChain},
		"it gets it when it takes": {func(r *registrations) {
			r.take(r.begin("a", false))
		}, map[string]int64{"a": 0}, noChain},
		"unless another group has taken it": {func(r *registrations) {
			a := r.begin("a", false)
			r.begin("b", true)
			r.take(a)
		}, map[string]int64{"a": 1, "b": 0}, noChain},
		"a further selection that takes ends the holding": {func(r *registrations) {
			r.begin("a", false)
			r.begin("a", true, "ord*")
		}, map[string]int64{"a": 0}, noChain},
		"a group that holds reads what is dropped": {func(r *registrations) {
			r.begin("a", true)
			r.begin("b", false)
			r.drop("a")
		}, map[string]int64{"b": 2}, noChain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r registrations
			c.run(&r)
			chains := logChainsOf(r.readings, orders)
			require.Equal(t, c.of, chains.of)
			require.Equal(t, c.waiting, chains.waiting)
		})
	}
}

// copies is how records do it: the groups of a message are those that are registered at its append. While nobody takes, a message also
// waits.
type copies struct {
	*rapid.T
	registrations
	rows    int
	waits   bool
	unread  map[string][]int // rows by group; "" is what waits
	held    map[string][]int // what came since a group began to hold, while it waits
	cursors map[int64]int    // of chains: how many rows were read
}

// living are the indexes of the readings that live.
func (w *copies) living() (living []int) {
	for i, r := range w.readings {
		if r.ended == 0 {
			living = append(living, i)
		}
	}
	return living
}

func (w *copies) groups() (living []string) {
	for _, i := range w.living() {
		if group := w.readings[i].group; !slices.Contains(living, group) {
			living = append(living, group)
		}
	}
	return living
}

func (w *copies) append() {
	to := w.unread
	if w.waits {
		to = w.held
		w.unread[""] = append(w.unread[""], w.rows)
	}
	for _, g := range w.groups() {
		to[g] = append(to[g], w.rows)
	}
	w.rows++
}

func (w *copies) register(group string, takes bool, topics ...string) {
	i := w.begin(group, takes, topics...)
	w.readings[i].begin.pos = int64(w.rows) - 1
	if takes {
		w.takes(group)
	}
}

func (w *copies) takes(group string) {
	if w.waits {
		w.held[group] = w.unread[""]
		w.unread, w.held, w.waits = w.held, map[string][]int{}, false
	}
}

// ended is after the end of a reading; gone says that nothing of it waits.
func (w *copies) ended(group string, gone bool) {
	if slices.Contains(w.groups(), group) {
		return
	}
	if !w.waits && len(w.groups()) == 0 {
		w.waits = true
		if !gone {
			w.unread[""] = w.unread[group]
		}
	}
	delete(w.unread, group)
	delete(w.held, group)
}

func (w *copies) dropAll(group string) {
	w.drop(group)
	w.ended(group, false)
}

func (w *copies) ttlEnds(i int) {
	w.expire(i)
	w.readings[i].end.pos = int64(w.rows) - 1
	w.ended(w.readings[i].group, true)
}

// at is the next row of a chain.
func (w *copies) at(chain int64) int {
	return max(w.cursors[chain], int(logChainsOf(w.readings, orders).beginOf(chain).pos)+1)
}

// left are the rows that a chain has not read.
func (w *copies) left(chain int64) (rows []int) {
	if chain == noChain {
		return nil
	}
	for row := w.at(chain); row < w.rows; row++ {
		rows = append(rows, row)
	}
	return rows
}

// claim reads n rows of the group's chain.
func (w *copies) claim(group string, n int) {
	chain, reads := logChainsOf(w.readings, orders).of[group]
	if !reads {
		return
	}
	n = min(n, len(w.left(chain)))
	w.cursors[chain] = w.at(chain) + n
	w.unread[group] = w.unread[group][n:]
}

// check compares what each chain has left with the copies.
func (w *copies) check(*rapid.T) {
	chains := logChainsOf(w.readings, orders)
	require.Equal(w, w.waits, chains.waiting != noChain)
	of := map[string]int64{"": chains.waiting}
	for group, chain := range chains.of {
		of[group] = chain
	}
	if !w.waits {
		require.Len(w, chains.of, len(w.groups()))
	}
	for group, chain := range of {
		require.Equal(w, append([]int{}, w.unread[group]...), append([]int{}, w.left(chain)...), "%q, chain %d", group, chain)
	}
}

// TestLogChains_Copies compares chains with copies of each message for each group, without transactions that stay open. Now and then it
// forgets the readings that change nothing.
func TestLogChains_Copies(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &copies{T: t, waits: true, unread: map[string][]int{}, held: map[string][]int{}, cursors: map[int64]int{}}
		group := rapid.SampledFrom([]string{"a", "b", "c"})
		topics := rapid.SampledFrom([][]string{nil, {"ord*"}})
		reading := func(t *rapid.T) int {
			if len(w.living()) == 0 {
				t.Skip("nobody reads")
			}
			return rapid.SampledFrom(w.living()).Draw(t, "reading")
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(*rapid.T) { w.append() },
			"register": func(t *rapid.T) {
				w.register(group.Draw(t, "group"), rapid.IntRange(0, 2).Draw(t, "hold") > 0, topics.Draw(t, "topics")...)
			},
			"take": func(t *rapid.T) {
				i := reading(t)
				if w.readings[i].takes != 0 {
					t.Skip("it takes")
				}
				w.take(i)
				w.takes(w.readings[i].group)
			},
			"drop":   func(t *rapid.T) { w.dropAll(group.Draw(t, "group")) },
			"claim":  func(t *rapid.T) { w.claim(group.Draw(t, "group"), rapid.IntRange(1, 9).Draw(t, "n")) },
			"end":    func(t *rapid.T) { w.ttlEnds(reading(t)) },
			"forget": func(*rapid.T) { w.readings = logPruned(w.readings) },
			"":       w.check,
		})
	})
}
