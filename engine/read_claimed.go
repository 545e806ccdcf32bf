package engine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// releasing is how long a claim that could not read may take to give records back.
const releasing = 5 * time.Second

// readClaimed reads the content of rows that a claim has leased, in their order. It runs after the commit, so that a
// record that ends its process by its size becomes a suspect, and a transaction does not last as long as the reading.
// If it fails, it gives back what it has not read, and returns what it has.
func (e *Engine) readClaimed(ctx context.Context, c *claim) ([]roles.RawRecord, error) {
	rows := mapped(c.got, func(c *driver.Change) driver.Row { return c.Now })
	read := make([]claimed, 0, len(rows))
	for len(rows) > 0 {
		n := piece(rows, cmp.Or(c.req.MaxBytes, e.config.ReadBytes))
		contents, err := c.contentsOf(ctx, rows[:n])
		if err != nil {
			if err = errors.Join(err, e.releaseUnread(ctx, rows)); len(read) == 0 {
				return nil, e.explain(ctx, "claim", err)
			}
			break
		}
		for i, content := range contents {
			// An operator may have deleted it since it was leased.
			if content.Record != nil {
				read = append(read, claimed{&rows[i], content})
			}
		}
		rows = rows[n:]
	}
	return e.failUnreadable(ctx, c.req, read)
}

// claimed is a row that a claim has leased, and what it has read of its record.
type claimed struct {
	*driver.Row
	content driver.Content
}

// keep notes contents that came with a page or with the commit.
func (c *claim) keep(contents map[outmill.WorkItemID]driver.Content) {
	if c.contents == nil {
		c.contents = make(map[outmill.WorkItemID]driver.Content, len(contents))
	}
	maps.Copy(c.contents, contents)
}

// contentsOf returns the content of rows. It reads what has not come.
func (c *claim) contentsOf(ctx context.Context, rows []driver.Row) (contents []driver.Content, err error) {
	var missing []driver.Row
	for i := range rows {
		if _, came := c.contents[rows[i].ID]; !came {
			missing = append(missing, rows[i])
		}
	}
	if len(missing) > 0 {
		contents, err = c.e.db.Read(ctx, missing, c.content)
	}
	for i := range contents {
		c.contents[missing[i].ID] = contents[i]
	}
	return mapped(rows, func(r driver.Row) driver.Content { return c.contents[r.ID] }), err
}

// piece is how many of the rows to read at a time: at least one, and otherwise not more than most bytes.
func piece(rows []driver.Row, most int) (n int) {
	bytes := 0
	for n < len(rows) && (n == 0 || bytes+rows[n].Size <= most) {
		bytes += rows[n].Size
		n++
	}
	return n
}

// failUnreadable makes the leased records dead that cannot be decoded, as a Fail by the claim does, and returns the others. If
// a key is parked with one, the claim gives back its later records, so that the next one parks them, too.
func (e *Engine) failUnreadable(ctx context.Context, req outmill.ClaimRequest, read []claimed) ([]roles.RawRecord, error) {
	parks, parked := req.KeyPolicy == outmill.KeyPark, map[lineKey]int64{}
	var bad []outmill.Settlement
	for _, r := range read {
		if r.content.Broken == "" {
			continue
		}
		bad = append(bad, outmill.Settlement{Lease: leaseOf(*r.Row), Err: unreadableError(r.content.Broken), Park: parks, Unhandled: true})
		if at := (lineKey{r.Line, r.Key}); parks && r.Key != "" && (parked[at] == 0 || r.Seq < parked[at]) {
			parked[at] = r.Seq
		}
	}
	err := e.Fail(ctx, bad)
	records := make([]roles.RawRecord, 0, len(read))
	var behind []driver.Row
	for _, r := range read {
		switch first := parked[lineKey{r.Line, r.Key}]; {
		case r.content.Broken != "":
		case first != 0 && first < r.Seq:
			behind = append(behind, *r.Row)
		default:
			fill(r.content.Record, r.Row)
			records = append(records, roles.RawRecord{Record: r.content.Record, Entries: r.content.Entries})
		}
	}
	if len(behind) > 0 {
		err = errors.Join(err, e.releaseUnread(ctx, behind))
	}
	if len(records) > 0 {
		// What could not be stored comes again when its lease has ended.
		return records, nil
	}
	return nil, err
}

type lineKey struct {
	driver.Line
	key string
}

func unreadableError(reason string) string { return storekit.UnreadableError + ": " + reason }

// unreadable is Record.Unreadable.
func unreadable(r driver.Row, c driver.Content) string {
	if r.Broken != "" && c.Broken != "" {
		return r.Broken + ", " + c.Broken
	}
	return cmp.Or(r.Broken, c.Broken)
}

// releaseUnread gives records back although the claim may have no time left.
func (e *Engine) releaseUnread(ctx context.Context, rows []driver.Row) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releasing)
	defer cancel()
	return e.Release(ctx, mapped(rows, leaseOf))
}

// leaseOf is the lease of a row that a claim has just written.
func leaseOf(r driver.Row) outmill.Lease {
	l := outmill.Lease{ID: r.ID, Claim: r.Claims}
	_ = l.Owner.Scan(r.Owner)
	return l
}
