package driver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

var _ driver.Taker = (*Driver)(nil)

// Take leases rows of the log where these are all that the line has. See driver.Taker.
func (d *Driver) Take(ctx context.Context, take driver.Take) (rows []driver.Taken, taken bool, err error) {
	l := d.takes(take.Line)
	if l == nil || d.log.refused.skips(take.Line) {
		return nil, false, nil
	}
	var c *ownClaim
	err = d.repeat(ctx, func(failures) error {
		c = &ownClaim{logLine: l, take: take}
		return d.alone(ctx, take.Durable, c.add)
	})
	if err != nil {
		return nil, false, err
	}
	if d.log.refused.note(take.Line, c.given < 0); c.given < 0 {
		return nil, false, nil
	}
	if len(c.rows) != c.given {
		return nil, false, fmt.Errorf("a claim has leased %d rows, and found %d", c.given, len(c.rows))
	}
	d.log.pace.used.Store(true)
	d.log.keep([]*leasedBatch{{c.logLine, &c.batch, c.places, c.ids}}, nil)
	return c.rows, true, nil
}

// takes is the chain that a claim of its own reads; nil is that the line needs another one.
func (d *Driver) takes(line driver.Line) *logLine {
	h := d.log.history.Load()
	if h == nil || !d.log.adapted.Load() {
		return nil
	}
	l := h.reads(line)
	if l == nil || l.dropping {
		return nil
	}
	for _, worked := range h.works(line) {
		if worked.chain != l.chain {
			return nil
		}
	}
	return l
}

// ownClaim is a claim of its own in one run of its transaction.
type ownClaim struct {
	*logLine
	take  driver.Take
	batch workBatch
	given int
	rows  []driver.Taken
	// places and ids are those of rows.
	places []int64
	ids    []outmill.WorkItemID
	// now is what it reads.
	now content
	rowMemory
}

// add queues the statements.
func (c *ownClaim) add(t *tx) {
	t.log = &txLog{}
	line, take := c.take.Line, c.take
	t.lockTables()
	tried := c.lock(t.d.names)
	if !take.Free {
		t.add("lock_all", []any{numbersOf([]int64{t.d.names.lockOf("line", line.Group, line.Name()), tried}, itself)}, nil)
		tried = 0
	}
	c.batch = workBatch{token: rand.Int64(), owner: take.Owner.String(), worker: take.Worker, ends: time.Now().Add(take.Lease)}
	args := c.args(schemaVersion, c.stamp, take.Pauses, line.Group, c.batch.owner, take.Worker, c.batch.token,
		int64(driver.Time(0).After(take.Lease)), take.Limit, take.MaxBytes, take.MaxRow, take.Parks, take.Alone,
		!take.Free && !take.Alone,
		listed(take.Open), listed(take.PausedBy), listed(take.PausedKeys), listed(take.PausedTenants), tried)
	t.add("log_claim", args, func(scan scan) error {
		err := scan(&c.batch.n, &c.given, (*int64)(&c.batch.until))
		c.batch.size = int64(c.given)
		return err
	})
	t.addStep(step{text: t.d.names.text("log_claimed", false), args: []any{c.topic, c.chain, c.batch.token}, raw: c.read})
}

// listed is a list that is not NULL.
func listed(texts []string) []string { return append([]string{}, texts...) }

// read reads a row from the connection into a record. Its columns are those of log_claimed.
func (c *ownClaim) read(row rawRow) error {
	if c.rows == nil {
		c.rows, c.places, c.ids = make([]driver.Taken, 0, c.given), make([]int64, 0, c.given), make([]outmill.WorkItemID, 0, c.given)
		c.left, c.shared = c.given, c.take.Listed
	}
	r := c.record()
	pos, event, created := row.number(0), row.number(1), driver.Time(row.number(2))
	id := row.id(3)
	texts := [...]*string{&r.Key, &r.MessageID, &r.TenantID, &r.CorrelationID, &r.CausationID, &r.TraceParent, &r.TraceState, &r.DedupKey}
	c.makeRoom(row.values[4:13])
	for i, text := range texts {
		*text = c.text(row.values[4+i])
	}
	if r.MessageID == "" {
		r.MessageID = id.String()
	}
	c.now = content{Content: driver.Content{Record: r}}
	if metadata := c.text(row.values[12]); c.shared && driver.IsTime(created) {
		r.DueAt = created.Of()
		c.list(&c.now, metadata)
	} else {
		c.now.set(created, "", metadata)
	}
	r.Payload = c.payload(&row, 13)
	line, take := c.take.Line, &c.take
	r.ID, r.Group, r.Topic, r.Status, r.Claims = c.masks.id(c.chain, id, event), line.Group, line.Topic, outmill.StatusLeased, 1
	r.CreatedAt, r.LeaseUntil, r.Owner, r.Worker = created.Of(), c.batch.until.Of(), take.Owner, take.Worker
	c.places, c.ids = append(c.places, pos), append(c.ids, r.ID)
	c.rows = append(c.rows, driver.Taken{Content: c.now.Content, Seq: pos})
	return row.err
}

// refusals are lines whose last claims of their own were refused. Each refusal in a row doubles how many claims then go by pages at once:
// what a line has beside the log mostly stays for a while.
type refusals struct {
	mu    sync.Mutex
	lines map[driver.Line]refusal
}

// refusal is how many claims go by pages from now, and behind the next refusal.
type refusal struct{ left, next int }

const (
	// mostSkipped is the most claims that go by pages at once, and mostRefused the most lines that are remembered.
	mostSkipped = 8
	mostRefused = 1000
)

// skips reports whether the claim goes by pages at once.
func (r *refusals) skips(line driver.Line) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.lines[line]
	if f.left == 0 {
		return false
	}
	f.left--
	r.lines[line] = f
	return true
}

func (r *refusals) note(line driver.Line, refused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !refused {
		delete(r.lines, line)
		return
	}
	if r.lines == nil || len(r.lines) >= mostRefused {
		r.lines = map[driver.Line]refusal{}
	}
	n := max(1, r.lines[line].next)
	r.lines[line] = refusal{n, min(2*n, mostSkipped)}
}
