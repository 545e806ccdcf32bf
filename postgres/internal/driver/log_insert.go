package driver

import (
	"encoding/hex"
	"errors"
	"strconv"

	"github.com/google/uuid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// logs reports whether the log can hold the row: it is due at once, and nothing is special about it.
func logs(r *driver.NewRow) bool {
	return r.Made && r.Stage == driver.Ready && r.Next == r.Created && r.Expires == 0 &&
		r.Step.IsZero() && r.WaitsFor.IsZero() && len(r.Record.Joins) == 0
}

// intoLog reports whether the log can hold all the messages of an append.
func (t *tx) intoLog(messages []driver.NewRow) bool {
	return !t.d.recordsOnly && !anyOf(messages, func(r *driver.NewRow) bool { return !logs(r) })
}

// logInsertArgs is the number of the arguments of log_insert.
const logInsertArgs = 18

// appendLogArgs appends a list for each column of the log.
func appendLogArgs(args []any, rows []driver.NewRow) []any {
	text := func(of func(r *driver.NewRow) string) []string { return someTexts(rows, of) }
	return append(args,
		numbersOf(rows, func(r *driver.NewRow) int64 { return int64(r.Created) }), idsOf(rows, func(r *driver.NewRow) [16]byte { return r.ID }),
		textsOf(rows, func(r *driver.NewRow) string { return r.Name() }), text(func(r *driver.NewRow) string { return r.Key }),
		text(messageOf),
		text(func(r *driver.NewRow) string { return r.Tenant }), text(func(r *driver.NewRow) string { return r.Record.CorrelationID }),
		text(func(r *driver.NewRow) string { return r.Record.CausationID }), text(func(r *driver.NewRow) string { return r.Record.TraceParent }),
		text(func(r *driver.NewRow) string { return r.Record.TraceState }), text(func(r *driver.NewRow) string { return r.Record.DedupKey }),
		textsOf(rows, marked), payloadsOf(rows),
	)
}

// appendOneArgs appends the columns of the only row.
func appendOneArgs(args []any, rows []driver.NewRow) []any {
	r := &rows[0]
	var id [2 * len(r.ID)]byte
	hex.Encode(id[:], r.ID[:])
	return append(args,
		strconv.FormatInt(int64(r.Created), 10), string(id[:]), r.Name(), r.Key, messageOf(r), r.Tenant, r.Record.CorrelationID,
		r.Record.CausationID, r.Record.TraceParent, r.Record.TraceState, r.Record.DedupKey, marked(r), payloadOf(r),
	)
}

// messageOf is the message id as the log has it: "" is the text of the row's id.
func messageOf(r *driver.NewRow) string {
	if len(r.Message) != len(uuid.Nil.String()) {
		return r.Message
	}
	// To parse the one takes no memory, as to write the other would.
	if id, err := uuid.Parse(r.Message); err == nil && id == uuid.UUID(r.ID) && r.Message == r.ID.String() {
		return ""
	}
	return r.Message
}

// errInLog says that an id that the user gave leads to a row of the log.
var errInLog = errors.New("the log has it")

// addOwnIDs queues the search for ids that the users of an append gave. The records have a primary key.
func (t *tx) addOwnIDs(rows []driver.NewRow) (inLog *bool) {
	inLog = new(bool)
	var lows, highs []outmill.WorkItemID
	for i := range rows {
		if !rows[i].Made {
			low, high := idsBehind(rows[i].ID)
			lows, highs = append(lows, low), append(highs, high)
		}
	}
	if len(lows) == 0 {
		return inLog
	}
	t.rides = false // it must not commit before the answer
	t.add("log_ids", []any{idsOf(lows, itself), idsOf(highs, itself)}, func(scan scan) error {
		*inLog = true
		n := 0
		return scan(&n)
	})
	return inLog
}
