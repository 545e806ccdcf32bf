package engine

import (
	"cmp"
	"context"
	"errors"
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
func (e *Engine) readClaimed(ctx context.Context, req outmill.ClaimRequest, got []*driver.Change, read reading) ([]roles.RawRecord, error) {
	read.records, read.rows = make([]roles.RawRecord, 0, len(got)), make([]*driver.Row, 0, len(got))
	for len(got) > 0 {
		n := piece(got, cmp.Or(req.MaxBytes, e.config.ReadBytes))
		err := e.readPiece(ctx, got[:n], &read)
		if err == nil {
			got = got[n:]
			continue
		}
		err = errors.Join(err, e.releaseUnread(ctx, rowsOf(got)))
		if len(read.records) == 0 {
			return nil, e.explain(ctx, "claim", err)
		}
		break
	}
	return e.failUnreadable(ctx, req, read)
}

// reading is what a claim has read.
type reading struct {
	// want is what it reads of each record.
	want    driver.Want
	records []roles.RawRecord
	// rows are those of the records.
	rows []*driver.Row
	// bad are the rows that cannot be decoded, and reasons say why.
	bad     []driver.Row
	reasons []string
	// known are the contents that came with the commit.
	known map[outmill.WorkItemID]driver.Content
}

// knownOf returns the contents of the rows if all of them are known.
func (r *reading) knownOf(rows []driver.Row) []driver.Content {
	contents := make([]driver.Content, 0, len(rows))
	for _, row := range rows {
		c, known := r.known[row.ID]
		if !known {
			return nil
		}
		contents = append(contents, c)
	}
	return contents
}

// piece is how many of the rows to read at a time: at least one, and otherwise not more than most bytes.
func piece(rows []*driver.Change, most int) (n int) {
	bytes := 0
	for n < len(rows) && (n == 0 || bytes+rows[n].Now.Size <= most) {
		bytes += rows[n].Now.Size
		n++
	}
	return n
}

// readPiece leaves out rows that an operator has deleted since they were leased.
func (e *Engine) readPiece(ctx context.Context, changes []*driver.Change, read *reading) error {
	rows := rowsOf(changes)
	contents := read.knownOf(rows)
	if contents == nil {
		var err error
		if contents, err = e.db.Read(ctx, rows, read.want); err != nil {
			return err
		}
	}
	for i, c := range contents {
		switch {
		case c.Record == nil:
		case c.Broken != "":
			read.bad, read.reasons = append(read.bad, rows[i]), append(read.reasons, c.Broken)
		default:
			fill(c.Record, &rows[i])
			read.records = append(read.records, roles.RawRecord{Record: c.Record, Entries: c.Entries})
			read.rows = append(read.rows, &rows[i])
		}
	}
	return nil
}

// failUnreadable makes the leased records dead that cannot be decoded, as a Fail by the claim does. If a key is parked
// with one, the claim gives back its later records, so that the next one parks them, too.
func (e *Engine) failUnreadable(ctx context.Context, req outmill.ClaimRequest, read reading) ([]roles.RawRecord, error) {
	if len(read.bad) == 0 {
		return read.records, nil
	}
	parks := req.KeyPolicy == outmill.KeyPark
	list, parked := make([]outmill.Settlement, len(read.bad)), map[lineKey]int64{}
	for i, r := range read.bad {
		list[i] = outmill.Settlement{Lease: leaseOf(r), Err: unreadableError(read.reasons[i]), Park: parks, Unhandled: true}
		if at := (lineKey{r.Line, r.Key}); parks && r.Key != "" && (parked[at] == 0 || r.Seq < parked[at]) {
			parked[at] = r.Seq
		}
	}
	err := e.Fail(ctx, list)
	var records []roles.RawRecord
	var behind []driver.Row
	for i, r := range read.rows {
		if first := parked[lineKey{r.Line, r.Key}]; first != 0 && first < r.Seq {
			behind = append(behind, *r)
			continue
		}
		records = append(records, read.records[i])
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

func rowsOf(changes []*driver.Change) []driver.Row {
	return mapped(changes, func(c *driver.Change) driver.Row { return c.Now })
}

// leaseOf is the lease of a row that a claim has just written.
func leaseOf(r driver.Row) outmill.Lease {
	l := outmill.Lease{ID: r.ID, Claim: r.Claims}
	_ = l.Owner.Scan(r.Owner)
	return l
}
