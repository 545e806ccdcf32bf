package sqlserver

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// maxAtOnce is the largest number of records that one statement changes. When one statement has
// 5,000 locks on a table, SQL Server replaces them by a lock of the whole table, and then all
// transactions wait for each other. A claim without an order may read five kinds of records.
const maxAtOnce = 900

// Claim leases up to req.Limit records. One statement leases at most 900; claims without an order
// use several. If Claim fails after it has leased some records, it returns these with the error.
// See outmill.Queue.
//
// A claim that passes over many records that have expired or are paused does so 900 at a time. If it
// finds nothing in half of the time that ctx leaves, it returns nothing, and wakes the readers.
func (s *Store) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	const operation = "claim"
	if err := storekit.CheckClaim(req); err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	req.Group = storekit.GroupOf(req.Group)
	var records []*outmill.Record
	var c *claim
	half := storekit.HalfTime(ctx)
	due := func() ([]string, error) {
		if c != nil && c.again && c.late() {
			s.notifier.Notify()
			return nil, nil
		}
		return s.dueTopics(ctx, req)
	}
	err := storekit.ServeDue(&s.turns, &s.busy, req, due, func(topics []string) (int, bool, error) {
		c = &claim{s: s, req: req, half: half}
		err := c.serveAll(ctx, topics)
		records = c.records
		if learned := s.learnPauses(ctx, operation, c.pauses); err == nil {
			err = learned
		}
		return len(records), c.again, err
	})
	s.logger.Claimed(req, len(records))
	return records, err
}

// dueTopics returns the selected topics that may have records to claim. Before it returns, it
// gives records of these topics that wait for a group to one.
func (s *Store) dueTopics(ctx context.Context, req outmill.ClaimRequest) ([]string, error) {
	return storekit.DueTopics(
		func() (due, unrouted []string, err error) { return s.lookForTopics(ctx, req) },
		func(topics outmill.Topics) (int, error) { return s.adoptAll(ctx, "claim", topics) })
}

// manyTopics is the largest number of names for which a claim searches one by one. If there are
// more, it skips through an index to the topics that have records.
const manyTopics = 16

func (s *Store) lookForTopics(ctx context.Context, req outmill.ClaimRequest) (due, unrouted []string, err error) {
	names, listed := req.Topics.Names()
	if len(names) > manyTopics {
		names, listed = nil, false
	}
	match := req.Topics.Matcher()
	var pauses int64
	err = s.run(ctx, "claim", call{
		template: "[dbo].[Outbox_Due]",
		args: []any{
			named("Group", req.Group), named("All", !listed), set(s, "Topics", "Name", s.names(names)), named("Owner", req.Owner.String()),
			named("Passed", storekit.IgnoredBlocker(req.KeyPolicy)),
			// Held records concern only claims without an order and claims of whole topics.
			// Claims by key use the lanes.
			named("HeldToo", req.Order != outmill.OrderKey),
		},
		reset: func() { due, unrouted = nil, nil },
		sets: []reader{numbers(&pauses), func(scan func(...any) error) error {
			var topic string
			var isDue, isUnrouted bool
			if err := scan(&topic, &isDue, &isUnrouted); err != nil || !match(topic) {
				return err
			}
			if isDue {
				due = append(due, topic)
			}
			if isUnrouted {
				unrouted = append(unrouted, topic)
			}
			return nil
		}},
	})
	if err == nil {
		err = s.learnPauses(ctx, "claim", pauses)
	}
	return due, unrouted, err
}

// claim is one Claim, with a transaction for each topic or, without an order, one transaction for
// all of them.
type claim struct {
	s       *Store
	req     outmill.ClaimRequest
	records []*outmill.Record
	bytes   int
	// over means that the claim takes no more records: it took a suspect, which must be alone, or
	// the next record exceeds MaxBytes.
	over bool
	// again means that the claim skipped so many records that there may be more to claim.
	again bool
	// pauses is the counter of the pauses that the claim has met.
	pauses int64
	// half is when half of the time of the claim has passed; zero if its time has no end.
	half time.Time
}

// late reports whether a claim that has found nothing should end.
func (c *claim) late() bool { return !c.half.IsZero() && time.Now().After(c.half) }

// room returns how many records the claim may still take.
func (c *claim) room() int {
	if c.over {
		return 0
	}
	return c.req.Limit - len(c.records)
}

func (c *claim) taken() int { return len(c.records) }

func (c *claim) serveAll(ctx context.Context, topics []string) error {
	take := c.takeByKey
	switch c.req.Order {
	case outmill.OrderNone:
		return c.takeAny(ctx, topics)
	case outmill.OrderKey:
	case outmill.OrderTopic:
		take = c.takeByTopic
	}
	return storekit.ServeTopics(topics, min(c.req.Limit, maxAtOnce), c.room, c.taken, func(topic string, want int) error {
		return take(ctx, topic, want)
	})
}

// takeAny takes records without an order, the earliest due first. Each topic has an equal share;
// topics with more records then use what the other topics left.
//
// If it meets only records that have expired or are paused, it reads twice as many the next time.
// Otherwise each of many paused records would cost a small part of a round trip.
func (c *claim) takeAny(ctx context.Context, topics []string) error {
	limit := min(c.req.Limit, maxAtOnce)
	share, least := (limit+len(topics)-1)/len(topics), 0
	for c.room() > 0 && len(topics) > 0 {
		want := max(min(share, c.room()), least)
		taken, err := c.takeShare(ctx, topics, want)
		if err != nil {
			return err
		}
		c.again = c.again || taken.passed > 0
		if taken.records+taken.passed == 0 || len(c.records) == 0 && c.late() {
			return nil
		}
		topics = slices.DeleteFunc(topics, func(topic string) bool { return taken.of[topic] < want })
		share = max(1, maxAtOnce/max(1, len(topics)))
		if least = 0; taken.records == 0 {
			least = min(2*want, share)
		}
	}
	return nil
}

// takings are the records of a round: those that were leased, and those that were passed over
// because they have expired or are paused.
type takings struct {
	records, passed int
	of              map[string]int
}

func (c *claim) takeShare(ctx context.Context, topics []string, share int) (taken takings, err error) {
	bytes := 0
	if c.req.MaxBytes > 0 {
		if bytes = c.req.MaxBytes - c.bytes; bytes <= 0 {
			c.over = true
			return taken, nil
		}
	}
	var found []placed
	err = c.s.run(ctx, "claim", call{
		template: "[dbo].[Outbox_Claim]",
		args: []any{
			named("Owner", c.req.Owner.String()), named("Group", c.req.Group), set(c.s, "Topics", "Name", c.s.names(topics)), named("Share", share),
			named("Room", min(c.room(), maxAtOnce)), named("Bytes", int64(bytes)), named("First", len(c.records) == 0),
			named("Lease", sqlkit.CeilMicros(c.req.Lease)),
		},
		reset: func() { found, taken = nil, takings{of: map[string]int{}} },
		sets: []reader{numbers(&c.pauses), func(scan func(...any) error) error {
			var topic string
			var passed int
			err := scan(&topic, &passed)
			taken.of[topic] += passed
			taken.passed += passed
			return err
		}, collect(&found)},
	})
	if err != nil {
		return taken, err
	}
	for _, p := range found {
		taken.of[p.record.Topic]++
	}
	taken.records = len(found)
	c.add(found, topics)
	return taken, nil
}

// add sorts the records in the order in which they were chosen, topic by topic.
func (c *claim) add(found []placed, topics []string) {
	slices.SortFunc(found, func(a, b placed) int {
		return cmp.Or(
			cmp.Compare(slices.Index(topics, a.record.Topic), slices.Index(topics, b.record.Topic)),
			a.due.Compare(b.due), cmp.Compare(a.seq, b.seq))
	})
	for _, p := range found {
		c.records = append(c.records, p.record)
		c.bytes += p.record.Size()
		c.over = c.over || p.record.Suspect()
	}
}

// jsonOf encodes a list of texts, or another value that always marshals.
func jsonOf(list any) string {
	text, _ := json.Marshal(list)
	return string(text)
}
