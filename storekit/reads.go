package storekit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outmill/outmill"
)

// MaxReads is the most entries of topics that the Reads of a registration have together.
const MaxReads = 50

func checkReads(reads []outmill.Reading) error {
	var errs []error
	entries := 0
	for _, r := range reads {
		entries += max(1, len(r.Topics.Include)+len(r.Topics.Exclude))
		errs = append(errs, CheckTopics(r.Topics))
		if r.Order < outmill.OrderNone || r.Order > outmill.OrderTopic || r.KeyPolicy < outmill.KeyBlock || r.KeyPolicy > outmill.KeyPark {
			errs = append(errs, fmt.Errorf("%w: Registration.Reads has the order %d and the policy %d: want those of a ClaimRequest",
				outmill.ErrInvalidConfig, int(r.Order), int(r.KeyPolicy)))
		}
	}
	if entries > MaxReads {
		errs = append(errs, fmt.Errorf("%w: Registration.Reads has %d entries of topics: want at most %d", outmill.ErrInvalidConfig, entries,
			MaxReads))
	}
	return errors.Join(errs...)
}

// ReadConflict are topics that workers of one group read in different ways. See ReadConflicts.
type ReadConflict struct {
	// Topics are sorted, and have the same Ways.
	Topics []string
	// Ways are the different orders and policies, two or more.
	Ways []ReadWay
}

// ReadWay are the workers that read in one way.
type ReadWay struct {
	Order outmill.Order
	// KeyPolicy is KeyBlock for OrderNone, which has no policy.
	KeyPolicy outmill.KeyPolicy
	// Workers are their names, sorted.
	Workers []string
}

// ReadConflictRemedy says what to do about a ReadConflict.
const ReadConflictRemedy = "Give all readers of the group the same Order and KeyPolicy (a forwarder has Unordered and KeyPolicy), " +
	"or another group to those that differ. During a rolling deployment it ends with the last old worker."

// String names the topics and the workers, at most three of each.
func (c ReadConflict) String() string {
	ways := make([]string, len(c.Ways))
	for i, way := range c.Ways {
		ways[i] = fmt.Sprintf("%s %s", someOf(way.Workers), way)
	}
	return fmt.Sprintf("Workers read %s differently: %s. So no order is promised.", someOf(c.Topics), strings.Join(ways, "; "))
}

// String is the way in words, such as "in the order of keys (block)".
func (w ReadWay) String() string {
	switch w.Order {
	case outmill.OrderKey:
		return fmt.Sprintf("in the order of keys (%s)", w.KeyPolicy)
	case outmill.OrderTopic:
		return fmt.Sprintf("in the order of the topic (%s)", w.KeyPolicy)
	default:
		return "without an order"
	}
}

func someOf(names []string) string {
	const most = 3
	quoted := make([]string, min(len(names), most))
	for i := range quoted {
		quoted[i] = fmt.Sprintf("%q", names[i])
	}
	text := strings.Join(quoted, ", ")
	if left := len(names) - most; left > 0 {
		text += fmt.Sprintf(" and %d more", left)
	}
	return text
}

// ReadConflicts returns the topics that workers of the group read in different orders or by
// different policies, as they have reported with their registrations, sorted by the first topic. runs
// says which workers count. It looks at the topics that the reports name and at those of the caller,
// because two patterns name none.
func ReadConflicts(g outmill.GroupInfo, runs func(outmill.WorkerInfo) bool, topics ...string) []ReadConflict {
	readers, mixed := readersOf(g, runs)
	if !mixed {
		return nil
	}
	topics = slices.Clone(topics)
	for _, r := range readers {
		topics = append(topics, r.names...)
	}
	slices.Sort(topics)
	var conflicts []ReadConflict
	for _, topic := range slices.Compact(topics) {
		ways := waysOf(readers, topic)
		if len(ways) < 2 {
			continue
		}
		same := func(c ReadConflict) bool { return slices.EqualFunc(c.Ways, ways, sameWay) }
		if i := slices.IndexFunc(conflicts, same); i >= 0 {
			conflicts[i].Topics = append(conflicts[i].Topics, topic)
			continue
		}
		conflicts = append(conflicts, ReadConflict{Topics: []string{topic}, Ways: ways})
	}
	return conflicts
}

func sameWay(a, b ReadWay) bool {
	return a.Order == b.Order && a.KeyPolicy == b.KeyPolicy && slices.Equal(a.Workers, b.Workers)
}

// topicReader is one Reading of a worker.
type topicReader struct {
	worker string
	order  outmill.Order
	policy outmill.KeyPolicy
	match  func(topic string) bool
	names  []string
}

// readersOf reports whether the readers of a group differ at all, which is rare.
func readersOf(g outmill.GroupInfo, runs func(outmill.WorkerInfo) bool) (readers []topicReader, mixed bool) {
	for _, w := range g.Workers {
		if !runs(w) {
			continue
		}
		for _, reading := range w.Reads {
			r := topicReader{worker: w.Name, order: reading.Order, policy: reading.KeyPolicy, match: reading.Topics.Matcher()}
			if r.order == outmill.OrderNone {
				r.policy = outmill.KeyBlock
			}
			for _, entry := range reading.Topics.Include {
				// A pattern names no topic.
				name, _ := outmill.Topics{Include: []string{entry}}.Names()
				r.names = append(r.names, name...)
			}
			readers = append(readers, r)
			mixed = mixed || r.order != readers[0].order || r.policy != readers[0].policy
		}
	}
	return readers, mixed
}

func waysOf(readers []topicReader, topic string) (ways []ReadWay) {
	for _, r := range readers {
		if !r.match(topic) {
			continue
		}
		i := slices.IndexFunc(ways, func(w ReadWay) bool { return w.Order == r.order && w.KeyPolicy == r.policy })
		if i < 0 {
			i, ways = len(ways), append(ways, ReadWay{Order: r.order, KeyPolicy: r.policy})
		}
		ways[i].Workers = append(ways[i].Workers, r.worker)
	}
	for i := range ways {
		slices.Sort(ways[i].Workers)
		ways[i].Workers = slices.Compact(ways[i].Workers)
	}
	slices.SortFunc(ways, func(a, b ReadWay) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.KeyPolicy, b.KeyPolicy))
	})
	return ways
}
