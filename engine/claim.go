package engine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

const (
	// scanLimit is the largest number of rows that a claim without an order, or a search for the oldest row, reads at a time.
	scanLimit = 1000
	// maxClaim is the most records that a claim returns.
	maxClaim = 100_000
	// readAlong is the most content that a driver may read with the commit of a claim. A record that is larger is not in memory before
	// the lease is known to be stored.
	readAlong = 1 << 20
	// manyTopics is the most topics that a claim looks for one by one.
	manyTopics = 16
)

// Claim leases records. See outmill.Queue. It works in transactions of bounded size, and returns after the
// first one that has leased a record, or that has nothing left to look at.
func (e *Engine) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	found, err := e.claimWith(ctx, req, driver.Metadata|driver.Payload)
	if found == nil {
		return nil, err
	}
	return mapped(found, func(r roles.RawRecord) *outmill.Record { return r.Record }), err
}

// RawOf returns the raw claims of a store on this engine, for a queue that a caller has: nil unless the queue is that store itself. See
// roles.Raw.
func (e *Engine) RawOf(store, queue outmill.Queue) roles.RawClaims {
	if queue != store {
		return nil
	}
	return e.ClaimRaw
}

// ClaimRaw is Claim, and leaves the metadata of records as a list. See roles.RawClaims.
func (e *Engine) ClaimRaw(ctx context.Context, req outmill.ClaimRequest) ([]roles.RawRecord, error) {
	return e.claimWith(ctx, req, driver.Metadata|driver.Payload|driver.Listed)
}

// claimWith leases records, and reads that much of them.
func (e *Engine) claimWith(ctx context.Context, req outmill.ClaimRequest, content driver.Want) ([]roles.RawRecord, error) {
	const operation = "claim"
	if err := storekit.CheckClaim(req); err != nil {
		return nil, e.explain(ctx, operation, err)
	}
	req.Group = storekit.GroupOf(req.Group)
	req.Limit = min(req.Limit, maxClaim)
	half := halfTime(ctx)
	generation := e.pauses.load().Generation()
	var busy []string
	for known, waits := e.busy.topics(req.Group, req.Topics), false; ; known, waits, busy = busy, busy != nil, nil {
		names := known
		if known == nil {
			var err error
			if names, err = e.dueNames(ctx, req); err != nil {
				return nil, err
			}
		}
		due, err := e.dueLines(req, names)
		switch {
		case err != nil:
			return nil, e.explain(ctx, operation, err)
		case len(due.topics) == 0 && known == nil:
			return nil, nil
		case len(due.topics) == 0:
			continue
		}
		due.topics = e.topics.order(due.topics, req.Limit)
		due.guess, due.waits = known != nil, waits
		records, taken, again, err := e.take(ctx, req, due, generation, content)
		if err == nil && !taken {
			records, busy, again, err = e.claimByPages(ctx, req, due, content, generation)
		}
		if len(records) > 0 {
			e.log.Claimed(req, len(records))
		}
		if err != nil || len(records) > 0 {
			return records, err
		}
		if !due.guess && !again {
			return nil, nil
		}
		if !half.IsZero() && time.Now().After(half) {
			// What was done stays done, and another claim goes on.
			e.notifier.Notify()
			return nil, nil
		}
	}
}

// claimByPages claims from these lines with the rules of this package. busy are lines that another claim has locked: the next transaction
// claims from them. again says that it may find more.
func (e *Engine) claimByPages(ctx context.Context, req outmill.ClaimRequest, due dueLines, content driver.Want, pauses int64) (
	records []roles.RawRecord, busy []string, again bool, err error) {
	c, err := e.claimOf(ctx, req, due, content, pauses)
	if err != nil {
		return nil, nil, false, err
	}
	e.found(req, due, len(c.got))
	if len(due.names) > manyTopics {
		// Otherwise each of the next claims would meet them again.
		e.busy.drop(req.Group, req.Topics, c.empty)
	}
	if len(c.got) > 0 {
		if records, err = e.readClaimed(ctx, c); err != nil || len(records) > 0 {
			return records, nil, false, err
		}
		c.again = true
	}
	if c.unrouted {
		// It is a transaction of its own, because it locks the registrations.
		adopted, err := e.adopt(ctx, "claim", req.Topics.Matcher())
		if err != nil {
			return nil, nil, false, err
		}
		c.again = c.again || adopted > 0
	}
	return nil, c.busy, c.again, nil
}

// found notes that a claim has leased n rows, so that the next ones claim from the same lines without a search.
func (e *Engine) found(req outmill.ClaimRequest, due dueLines, n int) {
	if n > 0 && !due.guess {
		e.busy.note(req.Group, req.Topics, due.names)
	}
}

// claimOf claims from these lines in one transaction. If they are a guess, namely those of a claim before, and the pauses have another
// generation now, it claims nothing, because the change may have freed other topics.
func (e *Engine) claimOf(ctx context.Context, req outmill.ClaimRequest, due dueLines, content driver.Want, pauses int64) (*claim, error) {
	var c *claim
	begin := (&claim{tx: &tx{e: e}, req: req, owner: req.Owner.String(), free: freeBlockers(req), content: content}).begin(due)
	err := e.inTurn(ctx, req, due, func() error {
		return e.updateFrom(ctx, "claim", begin, func(ctx context.Context, t *tx) (err error) {
			c = &claim{
				tx: t, req: req, owner: req.Owner.String(), content: content, empty: map[string]bool{}, waits: due.waits,
				scans: e.config.AtOnce.Scan(req.Limit), admits: e.config.AtOnce.Admit(req.Limit),
			}
			if due.guess && t.State().Pauses != pauses {
				return nil
			}
			t.parks = req.Order == outmill.OrderKey && req.KeyPolicy == outmill.KeyPark
			if c.free, err = t.freeBlockers(ctx, req); err != nil {
				return err
			}
			return c.run(ctx, due)
		})
	})
	return c, err
}

// inTurn makes this store's ordered claims of one topic wait for each other in the process. They would wait in the database otherwise,
// each with a connection that others need. A claim waits for the lock of its first line only.
func (e *Engine) inTurn(ctx context.Context, req outmill.ClaimRequest, due dueLines, claim func() error) error {
	if req.Order != outmill.OrderNone {
		unlock, err := e.claiming.Lock(ctx, [2]string{req.Group, due.topics[0]})
		if err != nil {
			return e.explain(ctx, "claim", err)
		}
		defer unlock()
	}
	return claim()
}

// claim is one claim within one transaction.
type claim struct {
	*tx
	req   outmill.ClaimRequest
	owner string
	// free are the Blockers of notes that do not block the claim.
	free  []string
	bytes int
	// taken are the rows that are leased, but not written yet; leased those of a topic that are written; and got
	// those of all topics that the claim returns.
	taken       []driver.Change
	leased, got []*driver.Change
	// content is what it reads of the records. contents are those that came with pages and with the commit.
	content  driver.Want
	contents map[outmill.WorkItemID]driver.Content
	// scans is how many rows it may still look at, and admits how many it may still make ready.
	scans, admits int
	// lines are those that it has locked. unrouted says that rows wait to be adopted before it may go on.
	lines    []driver.Line
	unrouted bool
	// empty are the names of the lines in which the claim has left nothing that it could take, and of those that have had their turn.
	empty map[string]bool
	// busy has a line that another claim has locked. The next transaction claims from it alone, and waits for it.
	busy  []string
	waits bool
	// over: a suspect, which is alone, or the bytes ended the claim. again: another transaction may find more.
	over, again bool
}

// begin is the first read of run.
func (c *claim) begin(due dueLines) driver.Begin {
	b := driver.Begin{Durable: c.e.config.DurableSettle}
	lines := due.lines[due.topics[0]]
	if len(lines) > 1 || due.waits && c.req.Order == outmill.OrderNone || c.together(due) {
		return b
	}
	tc := c.of(lines[0], shareOf(c.req.Limit, len(due.topics)))
	tc.admits = c.e.config.AtOnce.Admit(c.req.Limit)
	if c.req.Order == outmill.OrderNone {
		b.Searches = []driver.Search{tc.dueSearch(tc.want)}
		return b
	}
	ask := tc.firstAsk()
	b.Ask = &ask
	return b
}

func (c *claim) of(line driver.Line, want int) *topicClaim {
	return &topicClaim{claim: c, line: line, want: want}
}

// run claims from the topics, a share from each.
func (c *claim) run(ctx context.Context, due dueLines) error {
	if c.together(due) {
		return c.runTogether(ctx, due)
	}
	claimed := func() int { return len(c.got) }
	return serveTopics(due.topics, c.req.Limit, c.room, claimed, func(topic string, want int) error {
		if c.pauses.Topic(c.req.Group, topic) {
			return nil
		}
		return c.serve(ctx, due.lines[topic], want, len(due.topics) == 1)
	})
}

// room is how many further records the claim may take.
func (c *claim) room() int {
	if c.over {
		return 0
	}
	return c.req.Limit - c.claimed()
}

// claimed is how many records the claim has so far.
func (c *claim) claimed() int { return len(c.got) + len(c.leased) + len(c.taken) }

// scanned counts rows that the claim has looked at, and reports whether it may look at more.
func (c *claim) scanned(n int) bool {
	c.scans -= n
	c.again = c.again || c.scans <= 0
	return c.scans > 0
}

// fits reports whether the claim takes the row. After false it must take no later row of the topic.
func (c *claim) fits(r *driver.Row) bool {
	suspect, first := expiriesOf(r) >= outmill.SuspectExpiries, c.claimed() == 0
	switch {
	case c.refuses(r) != "":
		return true
	case c.room() <= 0, c.req.MaxBytes > 0 && c.bytes+r.Size > c.req.MaxBytes && !first:
		return false
	case suspect && !first:
		c.over = true
		return false
	}
	c.over = suspect
	return true
}

// take leases the row, to be written later. If the row cannot be decoded, or the claim refuses it, it goes dead instead, and
// parked reports whether its key is parked with it.
func (c *claim) take(r driver.Row) (parked bool) {
	c.change(r, func(r *driver.Row) {
		if reason := c.refuses(r); reason != "" {
			endLease(r)
			kill(r, reason)
			r.Parked = c.parks && r.Key != ""
			return
		}
		lease(r, c.owner, c.req.Worker, c.after(c.req.Lease))
	})
	change := &c.changes.Rows[len(c.changes.Rows)-1]
	if change.Now.Stage != driver.Leased {
		return change.Now.Parked
	}
	c.taken = append(c.taken, *change)
	c.bytes += r.Size
	return false
}

// mostText is more than what the size of a record has beyond the message that a publisher makes of it: topic, id and dedup
// key. Metadata and the other texts are its headers, so the message is not smaller than the rest.
const mostText = 8 << 10

// refuses returns why nobody may read the record any more; "" is nothing: it is too large for its reader, or it is a suspect
// whose attempts are used up.
func (c *claim) refuses(r *driver.Row) string {
	if c.req.MaxRecord > 0 && r.Size-mostText > c.req.MaxRecord {
		return fmt.Sprintf("%s: %d bytes, and the limit is %d", storekit.TooLargeError, r.Size, c.req.MaxRecord)
	}
	if c.req.MaxAttempts <= 0 || expiriesOf(r) < outmill.SuspectExpiries {
		return ""
	}
	ended := *r
	if endLease(&ended); ended.Attempts < c.req.MaxAttempts {
		return ""
	}
	return storekit.SuspectError(ended.Expiries)
}

// topicClaim is the part of a claim that is one line.
type topicClaim struct {
	*claim
	line driver.Line
	want int
	// cut is set if more rows are due than this transaction may admit: the last one that it has admitted. The
	// claim then returns no row that became due, or was appended, after that one, so that its result is that
	// of a claim at that moment. If cut has no Seq, it returns none.
	cut *driver.Row
	// lost says that rows were lost that the claim was about to change.
	lost bool
}

// run claims from the topic, and again while somebody else gets rows that it was about to take.
func (c *topicClaim) run(ctx context.Context, last bool) error {
	take := c.takeFree
	switch c.req.Order {
	case outmill.OrderKey:
		take = c.takeByKey
	case outmill.OrderTopic:
		take = c.takeByTopic
	case outmill.OrderNone:
	}
	begin := len(c.got)
	for pass := range attempts {
		c.lost = false
		if err := take(ctx); err != nil {
			return err
		}
		if err := c.finish(ctx, last); err != nil {
			return err
		}
		if pass > 0 {
			// They are in the order of one pass.
			by := bySeq
			if c.req.Order == outmill.OrderNone {
				by = byDue
			}
			slices.SortFunc(c.got[begin:], func(a, b *driver.Change) int { return by(a.Was, b.Was) })
		}
		if !c.lost || c.want <= 0 || c.room() <= 0 {
			break
		}
	}
	c.again = c.again || c.lost
	return nil
}

// late reports whether the row came after the moment of the claim.
func (c *topicClaim) late(r driver.Row) bool {
	return c.cut != nil && cmp.Or(cmp.Compare(dueOf(r), c.cut.Wake), cmp.Compare(r.Seq, c.cut.Seq)) > 0
}

// dueOf is the time since which the row is due, or was appended if that was later.
func dueOf(r driver.Row) driver.Time {
	if r.Stage == driver.Leased {
		return r.Wake
	}
	return max(r.Next, r.Created)
}

func bySeq(a, b driver.Row) int {
	return cmp.Or(cmp.Compare(a.Seq, b.Seq), bytes.Compare(a.ID[:], b.ID[:]))
}

func byDue(a, b driver.Row) int {
	return cmp.Or(cmp.Compare(dueOf(a), dueOf(b)), bySeq(a, b))
}

// found is how many records of the topic the claim has so far.
func (c *topicClaim) found() int { return len(c.leased) + len(c.taken) }

// finish writes the changes of a pass over the topic. last says that the claim goes on to no other topic.
func (c *topicClaim) finish(ctx context.Context, last bool) error {
	// After a row was lost in the middle, another pass follows.
	c.changes.Last = !c.lost && (last || c.req.Limit <= c.claimed() || c.over)
	if c.bytes <= readAlong {
		c.changes.Want = c.content
	}
	err := c.writeOn(ctx, map[lineKey]bool{})
	c.got, c.want, c.leased = append(c.got, c.leased...), c.want-len(c.leased), nil
	return err
}

// writeOn writes the changes, and leases what was taken. If a row was lost in an ordered claim, somebody may have given it back to wait
// for a retry, so the later rows of its key are not leased after all. It adds the key to lost.
func (c *topicClaim) writeOn(ctx context.Context, lost map[lineKey]bool) error {
	taken := c.taken
	c.taken = nil
	done, err := c.write(ctx)
	c.keep(done.Contents)
	if err != nil {
		return err
	}
	c.lost = c.lost || len(done.Lost) > 0
	var behind []*driver.Change
	for i := range taken {
		change := &taken[i]
		r, key := &change.Now, lineKey{Line: change.Now.Line}
		if c.req.Order == outmill.OrderKey {
			key.key = r.Key
		}
		switch {
		case done.Lost[r.ID]:
			lost[key] = c.req.Order == outmill.OrderTopic || key.key != ""
		case lost[key]:
			behind = append(behind, change)
		default:
			c.leased = append(c.leased, change)
			continue
		}
		// The claim goes on as if it had not met the row.
		c.bytes -= r.Size
		c.over = false
	}
	return c.unlease(ctx, behind)
}

// unlease undoes leases that nobody has got.
func (t *tx) unlease(ctx context.Context, changes []*driver.Change) error {
	for range attempts {
		if len(changes) == 0 {
			return nil
		}
		for _, c := range changes {
			t.change(c.Now, func(r *driver.Row) { unlease(r, c.Was) })
		}
		done, err := t.write(ctx)
		if err != nil {
			return err
		}
		changes = slices.DeleteFunc(changes, func(c *driver.Change) bool { return !done.Lost[c.Now.ID] })
	}
	return errLost
}
