package engine

import (
	"context"
	"errors"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

const (
	// mostBytes is how much content a claim without a MaxBytes reads at a time.
	mostBytes = 64 << 20
	// releasing is how long a claim that could not read may take to give records back.
	releasing = 5 * time.Second
)

// readClaimed reads the content of rows that a claim has leased, in their order. It runs after the commit, so that a
// record that ends its process by its size becomes a suspect, and a transaction does not last as long as the reading.
// If it fails, it gives back what it has not read, and returns what it has.
func (e *Engine) readClaimed(ctx context.Context, req outmill.ClaimRequest, got []driver.Change) ([]*outmill.Record, error) {
	records := make([]*outmill.Record, 0, len(got))
	for len(got) > 0 {
		n := piece(got, req.MaxBytes)
		read, err := e.readPiece(ctx, got[:n])
		if err != nil {
			err = errors.Join(err, e.releaseUnread(ctx, got))
			if len(records) > 0 {
				return records, nil
			}
			return nil, e.explain(ctx, "claim", err)
		}
		records, got = append(records, read...), got[n:]
	}
	return records, nil
}

// piece is how many of the rows to read at a time: at least one, and otherwise not more than most bytes.
func piece(rows []driver.Change, most int) (n int) {
	if most <= 0 {
		most = mostBytes
	}
	bytes := 0
	for n < len(rows) && (n == 0 || bytes+rows[n].Now.Size <= most) {
		bytes += rows[n].Now.Size
		n++
	}
	return n
}

// readPiece leaves out rows that an operator has deleted since they were leased.
func (e *Engine) readPiece(ctx context.Context, changes []driver.Change) ([]*outmill.Record, error) {
	rows := make([]driver.Row, len(changes))
	for i, c := range changes {
		rows[i] = c.Now
	}
	contents, err := e.db.Read(ctx, rows, driver.Metadata|driver.Payload)
	if err != nil {
		return nil, err
	}
	records := make([]*outmill.Record, 0, len(rows))
	for i, c := range contents {
		if c.Record == nil {
			continue
		}
		if err := fill(c.Record, &rows[i]); err != nil {
			return nil, err
		}
		records = append(records, c.Record)
	}
	return records, nil
}

// releaseUnread gives records back although the claim may have no time left.
func (e *Engine) releaseUnread(ctx context.Context, got []driver.Change) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releasing)
	defer cancel()
	leases := make([]outmill.Lease, len(got))
	for i, c := range got {
		leases[i] = leaseOf(c.Now)
	}
	return e.Release(ctx, leases)
}

// leaseOf is the lease of a row. Its owner's token is always one that a claim has written.
func leaseOf(r driver.Row) outmill.Lease {
	l := outmill.Lease{ID: r.ID, Claim: r.Claims}
	_ = l.Owner.Scan(r.Owner)
	return l
}
