package postgres

import (
	"fmt"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// row is a row to insert: one for each group of a record, or one without a group.
type row struct {
	of        *outmill.Record
	id        outmill.WorkItemID
	messageID string
	metadata  string
	// group is empty if no group has registered.
	group string
	// step is empty if the record is not a step of a join.
	step string
	size int64
	// turn: claims of the topic serve its tenants in turn.
	turn bool
}

// rows are made for the groups of one generation.
type rows struct {
	generation int64
	list       []row
}

func (a *appending) rows(table *storekit.RoutingTable) rows {
	list := make([]row, 0, len(a.Records))
	readers := map[string][]string{}
	for i, r := range a.Records {
		if a.Repeats(i) {
			continue
		}
		groups, known := readers[r.Topic]
		if !known {
			if groups = table.Of(r.Topic); len(groups) == 0 {
				groups = []string{""}
			}
			readers[r.Topic] = groups
		}
		each := newRow(r, a.IDs[i], a.metadata[i])
		each.turn = a.s.ServesTurns(r.Topic)
		for n, group := range groups {
			each.group, each.id = group, a.Deliver(i, n, group)
			list = append(list, each)
		}
	}
	return rows{table.Generation, list}
}

func newRow(of *outmill.Record, id outmill.WorkItemID, metadata string) row {
	r := row{of: of, id: id, messageID: of.MessageID, metadata: metadata, size: int64(of.Size())}
	if r.messageID == "" {
		r.messageID = id.String()
		r.size += int64(len(r.messageID))
	}
	if len(of.Joins) > 0 {
		r.step = id.String()
	}
	return r
}

// waitsForAndTurn returns the text for the statements: see the constant waitsForAndTurn.
func (r *row) waitsForAndTurn() (text string) {
	if r.turn {
		text = "."
	}
	if !r.of.WaitsFor.IsZero() {
		text += r.of.WaitsFor.String()
	}
	return text
}

// stepAndJoins returns the text for the statements: see the constant stepAndJoins.
func (r *row) stepAndJoins() string {
	if r.step == "" {
		return ""
	}
	return r.step + "{" + storekit.JoinsText(r.of.Joins) + "}"
}

// joins returns the list for COPY.
func (r *row) joins() [][16]byte {
	ids := make([][16]byte, len(r.of.Joins))
	for i, id := range r.of.Joins {
		ids[i] = id
	}
	return ids
}

// markedMetadata returns the text for the statements with lists: see the constant storedMetadata.
func (r *row) markedMetadata() string {
	if r.of.Payload == nil {
		return "-" + r.metadata
	}
	return r.metadata
}

// columns returns the values as lists.
func (r rows) columns() []any {
	list := r.list
	return []any{
		r.generation, schemaVersion,
		column(list, func(r *row) string { return r.id.String() }),
		column(list, func(r *row) string { return r.of.Topic }),
		column(list, func(r *row) string { return r.of.Key }),
		column(list, func(r *row) int64 { return r.size }),
		column(list, func(r *row) string { return r.messageID }),
		column(list, func(r *row) string { return r.of.CorrelationID }),
		column(list, func(r *row) string { return r.of.CausationID }),
		column(list, func(r *row) string { return r.of.TenantID }),
		column(list, func(r *row) string { return r.of.TraceParent }),
		column(list, func(r *row) string { return r.of.TraceState }),
		column(list, func(r *row) string { return r.of.DedupKey }),
		column(list, (*row).markedMetadata),
		column(list, func(r *row) []byte { return r.of.Payload }),
		column(list, func(r *row) string { return timeText(r.of.Delay, r.of.DueAt) }),
		column(list, func(r *row) string { return timeText(r.of.TimeToLive, r.of.ExpiresAt) }),
		column(list, func(r *row) string { return r.group }),
		column(list, (*row).stepAndJoins),
		column(list, (*row).waitsForAndTurn),
	}
}

func column[T any](list []row, of func(*row) T) []T {
	values := make([]T, len(list))
	for i := range list {
		values[i] = of(&list[i])
	}
	return values
}

// only returns the values of a single row.
func (r rows) only() []any {
	one := &r.list[0]
	of := one.of
	return append(r.head(),
		timeText(of.Delay, of.DueAt), timeText(of.TimeToLive, of.ExpiresAt), one.group, one.stepAndJoins(), one.waitsForAndTurn())
}

// onlyLogged returns the values of a single row of the log.
func (r rows) onlyLogged() []any {
	one := &r.list[0]
	return append(r.head(), one.group, one.stepAndJoins(), one.line())
}

// head returns the values of a single row that both lanes have.
func (r rows) head() []any {
	one := &r.list[0]
	of := one.of
	return append(make([]any, 0, 20),
		r.generation, schemaVersion, one.id.String(), of.Topic, of.Key, one.size, one.messageID, of.CorrelationID, of.CausationID, of.TenantID,
		of.TraceParent, of.TraceState, of.DedupKey, one.metadata, of.Payload)
}

// textOfTime is a layout of times in UTC that PostgreSQL can parse.
const textOfTime = "2006-01-02T15:04:05.000000Z"

// timeText returns a time for the statement: an interval after the server's now, a complete
// time, or "".
func timeText(after time.Duration, at time.Time) string {
	switch {
	case after > 0:
		micros := sqlkit.CeilMicros(after)
		const second = 1_000_000
		return fmt.Sprintf("+%d:%02d:%02d.%06d", micros/(3600*second), micros/(60*second)%60, micros/second%60, micros%second)
	case at.IsZero():
		return ""
	default:
		return at.UTC().Format(textOfTime)
	}
}

// due returns the record's due time, from the server's time.
func (r *row) due(now time.Time) time.Time {
	switch {
	case r.of.Delay > 0:
		return now.Add(time.Duration(sqlkit.CeilMicros(r.of.Delay)) * time.Microsecond)
	case r.of.DueAt.IsZero():
		return now
	default:
		return r.of.DueAt
	}
}

func (r *row) expiry(now time.Time) (at time.Time, ok bool) {
	if r.of.TimeToLive > 0 {
		return now.Add(time.Duration(sqlkit.CeilMicros(r.of.TimeToLive)) * time.Microsecond), true
	}
	return r.of.ExpiresAt, !r.of.ExpiresAt.IsZero()
}
