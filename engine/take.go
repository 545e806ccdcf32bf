package engine

import (
	"cmp"
	"context"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// mostTaken is the most rows of one Take, and mostTakenBytes the most content.
const (
	mostTaken      = 10_000
	mostTakenBytes = 8 << 20
)

// LargestClaim is up to how many records the claims of a forwarder grow. See storekit.LargestClaimer. A driver that takes rows by their
// places leases many as cheaply as few. With another one each row is a write, and others wait for the transaction.
func (e *Engine) LargestClaim() int {
	if _, takes := e.db.(driver.Taker); takes {
		return 4000
	}
	return storekit.LargestClaim
}

// take has the driver claim from the only line that is due, if it can, and if nothing of it needs the rules here. taken is false if it has
// done nothing. again says that another claim may find more.
func (e *Engine) take(ctx context.Context, req outmill.ClaimRequest, due dueLines, generation int64, content driver.Want) (
	records []roles.RawRecord, taken, again bool, err error) {
	taker, can := e.db.(driver.Taker)
	if !can || len(due.topics) != 1 || req.Limit > mostTaken {
		return nil, false, false, nil
	}
	lines, pauses := due.lines[due.topics[0]], e.pauses.load()
	if len(lines) != 1 || e.isFair(lines[0]) || pauses.Generation() != generation {
		return nil, false, false, nil
	}
	ask := driver.Take{
		Line: lines[0], Owner: req.Owner, Worker: req.Worker, Lease: req.Lease, Limit: req.Limit, MaxRow: readAlong,
		MaxBytes: min(mostTakenBytes, cmp.Or(req.MaxBytes, e.config.ReadBytes)),
		Free:     req.Order == outmill.OrderNone, Alone: req.Order == outmill.OrderTopic,
		Parks: req.Order == outmill.OrderKey && req.KeyPolicy == outmill.KeyPark,
		Open:  freeBlockers(req), Pauses: generation, Durable: e.config.DurableSettle, Listed: content&driver.Listed != 0,
	}
	if !pausedOf(pauses, &ask) {
		return nil, false, false, nil
	}
	if req.MaxRecord > 0 {
		ask.MaxRow = min(ask.MaxRow, req.MaxRecord+mostText)
	}
	if err := e.ready(ctx); err != nil {
		return nil, false, false, e.explain(ctx, "claim", err)
	}
	var rows []driver.Taken
	err = e.inTurn(ctx, req, due, func() (err error) {
		rows, taken, err = taker.Take(ctx, ask)
		return e.explain(ctx, "claim", err)
	})
	if err != nil || !taken {
		return nil, false, false, err
	}
	e.found(req, due, len(rows))
	records, err = e.takenRecords(ctx, req, ask, rows)
	return records, true, len(rows) > 0, err
}

// mostPaused is the most pauses of a line with which a driver takes rows.
const mostPaused = 500

// pausedOf adds the pauses of keys and tenants of the line to the Take. It returns false if a pause is of the whole line, or if there are
// more than mostPaused.
func pausedOf(pauses *roles.PauseList, take *driver.Take) bool {
	line := take.Line
	for _, p := range pauses.All() {
		if p.Group != "" && p.Group != line.Group || p.Topic != "" && p.Topic != line.Topic {
			continue
		}
		switch {
		case p.Key != "":
			take.PausedKeys = append(take.PausedKeys, p.Key)
		case p.TenantID != "":
			take.PausedTenants = append(take.PausedTenants, p.TenantID)
		default:
			return false
		}
		if take.PausedBy = append(take.PausedBy, driver.PauseNote(p.Number), driver.KeyedPauseNote(p.Number)); len(take.PausedBy) > 2*mostPaused {
			return false
		}
	}
	return true
}

// takenRecords are the records of the rows. Those that cannot be decoded become dead, as in other claims.
func (e *Engine) takenRecords(ctx context.Context, req outmill.ClaimRequest, ask driver.Take, rows []driver.Taken) (
	[]roles.RawRecord, error) {
	records := make([]roles.RawRecord, len(rows))
	for i := range rows {
		if rows[i].Broken != "" {
			return e.failUnreadable(ctx, req, claimedOf(ask, rows))
		}
		records[i] = roles.RawRecord{Record: rows[i].Record, Entries: rows[i].Entries}
	}
	return records, nil
}

// claimedOf are the rows as a claim by pages has them.
func claimedOf(ask driver.Take, rows []driver.Taken) []claimed {
	list := make([]claimed, len(rows))
	for i := range rows {
		r, now := rows[i].Record, func(t time.Time) driver.Time { return driver.Time(t.UnixMicro()) }
		list[i] = claimed{&driver.Row{
			Seq: rows[i].Seq, ID: r.ID, Line: ask.Line, Key: r.Key, Tenant: r.TenantID, Created: now(r.CreatedAt), Next: now(r.CreatedAt),
			Stage: driver.Leased, Wake: now(r.LeaseUntil), Claims: r.Claims, Owner: ask.Owner.String(), Worker: r.Worker,
		}, rows[i].Content}
	}
	return list
}
