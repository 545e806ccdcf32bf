package sqlserver

import (
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Append writes all the records or none. See outmill.Writer.
func (s *Store) Append(ctx context.Context, records ...*outmill.Record) error {
	const operation = "append"
	tx, err := s.txOf(ctx)
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	if err := storekit.CheckRecords(records, s.config.MaxPayload); err != nil {
		return s.explain(ctx, operation, err)
	}
	if len(records) == 0 {
		return s.explain(ctx, operation, s.usable(ctx))
	}
	a, err := newAppending(s, records)
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	if tx != nil {
		err = s.within(ctx, operation, tx, a.write)
	} else {
		err = s.try(ctx, operation, func(ctx context.Context) error { return a.write(ctx, s.db) })
	}
	if err != nil {
		return err
	}
	a.Finish(ctx, s, tx != nil, s.logger, &s.notifier)
	return nil
}

// appending is the work of one Append. It may run more than once, and changes no record before
// Report.
type appending struct {
	*storekit.Appending
	s        *Store
	metadata []string
}

func newAppending(s *Store, records []*outmill.Record) (*appending, error) {
	a := &appending{Appending: storekit.NewAppending(records), s: s}
	var err error
	a.metadata, err = a.Metadata(rowLimits.Check)
	return a, err
}

// rowLimits are the limits of SQL Server: the column Size is an INT, and NVARCHAR(MAX) uses two
// bytes for a character.
var rowLimits = storekit.RowLimits{Row: math.MaxInt32, Metadata: math.MaxInt32 / 2, PayloadTimes: 1}

// write writes in the caller's transaction. On the pool, it writes in a transaction of its own.
func (a *appending) write(ctx context.Context, on querier) error {
	if err := a.checkSteps(ctx, on); err != nil {
		return err
	}
	return a.writeUnchecked(ctx, on)
}

// maxTries bounds how often an append reads the groups again.
const maxTries = 10

// writeUnchecked is write after the steps were checked.
func (a *appending) writeUnchecked(ctx context.Context, on querier) error {
	for range maxTries {
		table := a.s.routes.Load()
		if table == nil {
			var err error
			if table, err = a.s.loadRoutes(ctx, on); err != nil {
				return err
			}
		}
		fits, err := a.put(ctx, table, on)
		if err != nil || fits {
			return err
		}
		// Nothing was written, because the groups have changed.
		a.s.routes.Forget(table)
	}
	return errRoutesChanged
}

// put writes the records. If table is not the one that the transaction sees, it writes nothing
// and returns false.
func (a *appending) put(ctx context.Context, table *storekit.RoutingTable, on querier) (fits bool, err error) {
	c := call{
		template: "[dbo].[Outbox_Append]",
		args: []any{
			named("Within", !isPool(on)), named("Generation", table.Generation), named("Version", schemaVersion),
			set(a.s, "New", "New", a.rows(table)), set(a.s, "Members", "NewMember", a.members(table)),
			named("DedupWindow", a.s.config.DedupWindow.Microseconds()),
		},
	}
	c.reset = func() {
		for _, i := range a.First {
			a.Duplicate[i] = true
		}
	}
	c.sets = []reader{func(scan func(...any) error) error {
		var free storekit.DedupKey
		if err := scan(&fits, &a.CreatedAt, &free.Topic, &free.Key); err != nil || free.Topic == "" {
			return err
		}
		a.Duplicate[a.First[free]] = false
		return nil
	}}
	err = a.s.do(ctx, on, c)
	return fits, err
}

func isPool(on querier) bool {
	_, is := on.(*sql.DB)
	return is
}

// rows returns one row for each group of a record, or one row without a group.
func (a *appending) rows(table *storekit.RoutingTable) []newRow {
	rows := make([]newRow, 0, len(a.Records))
	add := func(row newRow, id outmill.WorkItemID) {
		row.Place, row.ID, row.IDBytes = int64(len(rows)), id.String(), id[:]
		rows = append(rows, row)
	}
	readers := map[string][]string{}
	for i, r := range a.Records {
		if a.Repeats(i) {
			continue
		}
		groups, known := readers[r.Topic]
		if !known {
			groups = table.Of(r.Topic)
			readers[r.Topic] = groups
		}
		row := a.row(i)
		if len(groups) == 0 {
			add(row, a.Deliver(i, 0, ""))
		}
		for n, group := range groups {
			id := a.Deliver(i, n, group)
			row.Group = sql.NullString{String: a.s.text(group), Valid: true}
			add(row, id)
		}
	}
	return rows
}

func (a *appending) row(i int) newRow {
	of, text := a.Records[i], a.s.text
	row := newRow{
		Topic: text(of.Topic), Key: text(of.Key), Size: int64(of.Size()), MessageID: text(of.MessageID),
		CorrelationID: some(text(of.CorrelationID)),
		CausationID:   some(text(of.CausationID)), TenantID: some(text(of.TenantID)), TraceParent: some(text(of.TraceParent)),
		TraceState: some(text(of.TraceState)),
		DedupKey:   text(of.DedupKey), Metadata: some(text(a.metadata[i])), Payload: of.Payload,
	}
	if row.MessageID == "" {
		row.MessageID = a.IDs[i].String()
		row.Size += int64(len(row.MessageID))
	}
	if len(of.Joins) > 0 {
		row.Step, row.Joins = a.IDs[i][:], some(storekit.JoinsText(of.Joins))
	}
	if !of.WaitsFor.IsZero() {
		row.WaitsFor = of.WaitsFor[:]
	}
	row.DueAt, row.DueAfter = when(of.DueAt, of.Delay)
	row.ExpiresAt, row.ExpiresAfter = when(of.ExpiresAt, of.TimeToLive)
	return row
}

// when is a time, or a delay in microseconds from the server's now.
func when(at time.Time, after time.Duration) (text sql.NullString, micros sql.NullInt64) {
	switch {
	case after > 0:
		micros = sql.NullInt64{Int64: sqlkit.CeilMicros(after), Valid: true}
	case !at.IsZero():
		text = some(at.UTC().Format(textOfTime))
	}
	return text, micros
}
