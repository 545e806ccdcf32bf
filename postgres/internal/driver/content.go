package driver

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/postgres/internal/conns"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// largeInsert is the size from which the server may be busy receiving a statement for longer than a transaction may be idle.
const largeInsert = 1 << 20

func sizeOf(rows []driver.NewRow) (size int) {
	for i := range rows {
		size += rows[i].Size
	}
	return size
}

var _ driver.MessageInserter = (*tx)(nil)

// anyOf reports whether one of the rows is so. A row is large, so it is not copied.
func anyOf(rows []driver.NewRow, so func(r *driver.NewRow) bool) bool {
	for i := range rows {
		if so(&rows[i]) {
			return true
		}
	}
	return false
}

// Insert inserts rows in their order.
func (t *tx) Insert(ctx context.Context, rows []driver.NewRow) error {
	return t.InsertMessages(ctx, rows)
}

// InsertMessages writes messages to the log, or their rows to the records. See driver.MessageInserter.
func (t *tx) InsertMessages(ctx context.Context, messages []driver.NewRow) error {
	if len(messages) == 0 {
		return nil
	}
	rows, logged := messages, t.intoLog(messages)
	if !logged {
		rows = driver.WithCopies(messages)
	}
	if t.guesses {
		if anyOf(messages, func(r *driver.NewRow) bool { return !r.Made }) {
			return errGuess // their ids are looked for before the commit
		}
		if t.caller != nil {
			return t.insertWithin(ctx, rows, logged)
		}
		if err := t.beginInsert(ctx, rows); err != nil {
			return err
		}
	}
	size := sizeOf(rows)
	if err := t.checkSize(rows, size); err != nil {
		return err
	}
	if size >= largeInsert && t.own != nil {
		if err := t.bePatient(ctx); err != nil {
			return err
		}
	}
	t.addNotice(messages)
	if logged {
		if to := t.copies(rows); to != nil {
			return t.copy(ctx, to, rows)
		}
	}
	inLog := t.addOwnIDs(messages)
	same := t.addInsert(rows, logged)
	send := t.flush
	if t.inserts && t.rides {
		send = t.commit
	}
	err := send(ctx)
	switch {
	case code(err) == codeUnique:
		err = taken(err)
	case size >= largeInsert && (code(err) == codeProgramLimit || code(err) == codeInternal):
		err = fmt.Errorf("%w (%w)", tooLarge("makes a statement that is too large for this pool, which sends it as text"), err)
	case err == nil && *inLog:
		err = taken(errInLog)
	case err == nil && !*same:
		err = t.stale()
	}
	return err
}

// stale is the error of an append whose registrations have changed.
func (t *tx) stale() error {
	if t.guesses {
		return errGuess
	}
	return errStale
}

// bePatient lets the server wait for a large argument. A pool that sends text sends all of a round trip as one statement, so the server
// would hear of it too late.
func (t *tx) bePatient(ctx context.Context) error {
	t.add("patience", nil, nil)
	if t.own.conn.Config().DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		return t.flush(ctx)
	}
	return nil
}

// checkSize refuses rows of this size that make a statement which PostgreSQL does not take. To send it would end the connection.
func (t *tx) checkSize(rows []driver.NewRow, size int) error {
	if size <= MaxStatement/2 {
		return nil // as text a payload has at most twice its size
	}
	if _, asText := t.to.(*onSQL); asText {
		for i := range rows {
			size += len(rows[i].Record.Payload)
		}
	}
	if size > MaxStatement {
		return tooLarge(fmt.Sprintf(
			"of all records of the call makes a statement of %d bytes: PostgreSQL takes at most %d; append them in several calls",
			size, MaxStatement))
	}
	return nil
}

func tooLarge(reason string) error {
	return &outmill.InvalidRecordError{Index: -1, Field: "payload", Reason: reason}
}

// errGuess says that a transaction that guessed the state has written nothing.
var errGuess = errors.New("the registrations have changed: the transaction runs again")

// appendCheckArgs appends the time, if it is guessed, and the registrations that the rows were made for.
func (t *tx) appendCheckArgs(args []any) []any {
	guessed := driver.Time(0)
	if t.guesses {
		guessed = t.state.Now
	}
	return append(args, int64(guessed), t.state.Routes, schemaVersion)
}

// logCheckArgs are the arguments of log_check.
func (t *tx) logCheckArgs() []any { return t.appendLogCheckArgs(nil) }

func (t *tx) appendLogCheckArgs(args []any) []any {
	return append(t.appendCheckArgs(args), t.log.event, t.log.segment)
}

// addInsert queues the insert. Where the state is guessed, the rows are inserted only if the registrations are the same, and their times
// become those of the database.
func (t *tx) addInsert(rows []driver.NewRow, logged bool) (same *bool) {
	same = new(bool)
	name := "insert"
	var args []any
	if logged {
		t.d.log.pace.used.Store(true)
		into, columns := insertInto, appendLogArgs
		if len(rows) == 1 {
			into, columns = oneInto, appendOneArgs
		}
		name = into + strconv.FormatInt(t.log.segment, 10)
		args = columns(t.appendLogCheckArgs(make([]any, 0, logInsertArgs)), rows)
	} else {
		args = t.appendCheckArgs(insertArgs(rows))
		t.state.Unrouted = t.state.Unrouted || anyOf(rows, func(r *driver.NewRow) bool { return r.Group == "" })
	}
	shifted := func(shift int64) {
		*same = true
		t.state.Now += driver.Time(shift)
	}
	t.addStep(step{text: t.d.names.text(name, t.locks), args: args, row: func(scan scan) error {
		var shift int64
		err := scan(&shift)
		shifted(shift)
		return err
	}, raw: func(row rawRow) error {
		shifted(row.number(0))
		return row.err
	}})
	return same
}

// guess runs fn, which only inserts, as if the state were that of the last transaction. The insert then begins the transaction, checks
// the state, and commits, in one round trip. guessed is false if that does not do, and nothing is written.
func (d *Driver) guess(ctx context.Context, begin driver.Begin, fn func(driver.Tx) error) (guessed bool, err error) {
	last := d.last.Load()
	if last == nil || !d.log.adapted.Load() { // a caller's transaction has read the state, and has not looked at the server
		return false, nil
	}
	t := &tx{d: d, to: guessing{}, rides: true, inserts: true, guesses: true, durable: begin.Durable, state: *last, log: d.newTxLog()}
	err = fn(t)
	if t.own != nil {
		if t.own.lost(ctx, err) {
			err = errors.Join(errConnectionLost, err)
		}
		t.own.end(ctx, err)
	}
	if errors.Is(err, errGuess) || passes(err) || conns.IsReadOnly(err) {
		t.retract()
		return false, nil
	}
	if err == nil {
		t.Committed()
	}
	return true, err
}

// guessing is the sender of a transaction that has not begun: whatever it is asked for needs one that has.
type guessing struct{}

func (guessing) send(context.Context, []step) error { return errGuess }

// hasFixedTime reports whether a row has a time that does not depend on the moment of its append.
func hasFixedTime(r *driver.NewRow) bool {
	return !r.Record.DueAt.IsZero() || !r.Record.ExpiresAt.IsZero()
}

// beginInsert begins the transaction of an insert whose rows have no other times than those that depend on its moment.
func (t *tx) beginInsert(ctx context.Context, rows []driver.NewRow) error {
	if anyOf(rows, hasFixedTime) {
		return errGuess
	}
	own, err := t.d.begin(ctx)
	if err != nil {
		return err
	}
	t.own, t.to = own, onPgx{own.conn}
	t.addBegin(sqlBegin)
	t.add("settings", []any{t.durable}, nil)
	return nil
}

// insertArgs are a list for each column. A list of which each item is empty is itself empty, and has NULL for each row: most messages have
// only few of the texts.
func insertArgs(rows []driver.NewRow) []any {
	text := func(of func(r *driver.NewRow) string) []string { return someTexts(rows, of) }
	number := func(of func(r *driver.NewRow) int64) string { return numbersOf(rows, of) }
	id := func(of func(r *driver.NewRow) [16]byte) string {
		for i := range rows {
			if of(&rows[i]) != [16]byte{} {
				return idsOf(rows, of)
			}
		}
		return "{}"
	}
	return []any{
		id(func(r *driver.NewRow) [16]byte { return r.ID }), text(func(r *driver.NewRow) string { return r.Group }),
		text(func(r *driver.NewRow) string { return r.Name() }), text(func(r *driver.NewRow) string { return r.Key }),
		text(func(r *driver.NewRow) string { return r.Tenant }), number(func(r *driver.NewRow) int64 { return int64(r.Created) }),
		number(func(r *driver.NewRow) int64 { return int64(r.Size) }), number(func(r *driver.NewRow) int64 { return int64(r.Stage) }),
		number(func(r *driver.NewRow) int64 { return int64(r.Wake) }), number(func(r *driver.NewRow) int64 { return int64(r.Next) }),
		number(func(r *driver.NewRow) int64 { return int64(r.Expires) }),
		number(func(r *driver.NewRow) int64 { return int64(max(r.Next, r.Created)) }),
		id(func(r *driver.NewRow) [16]byte { return r.Step }), id(func(r *driver.NewRow) [16]byte { return r.WaitsFor }),
		text(func(r *driver.NewRow) string { return r.Message }), text(func(r *driver.NewRow) string { return r.Record.CorrelationID }),
		text(func(r *driver.NewRow) string { return r.Record.CausationID }), text(func(r *driver.NewRow) string { return r.Record.TraceParent }),
		text(func(r *driver.NewRow) string { return r.Record.TraceState }), text(func(r *driver.NewRow) string { return r.Record.DedupKey }),
		text(func(r *driver.NewRow) string { return storekit.JoinsText(r.Record.Joins) }), text(marked), payloadsOf(rows),
	}
}

// someTexts are the texts of a column, none if each is empty.
func someTexts(rows []driver.NewRow, of func(r *driver.NewRow) string) []string {
	for i := range rows {
		if of(&rows[i]) != "" {
			return textsOf(rows, of)
		}
	}
	return []string{}
}

// payloadsOf are the payloads. Which of them is nil is in the mark of the metadata.
func payloadsOf(rows []driver.NewRow) [][]byte {
	payloads := make([][]byte, len(rows))
	for i := range rows {
		payloads[i] = payloadOf(&rows[i])
	}
	return payloads
}

func payloadOf(r *driver.NewRow) []byte {
	if r.Record.Payload == nil {
		return []byte{}
	}
	return r.Record.Payload
}

// marked is the metadata behind a mark, which says whether there is a payload.
func marked(r *driver.NewRow) string {
	if r.Record.Payload == nil {
		return "-" + r.Metadata
	}
	return "+" + r.Metadata
}

type content struct {
	id outmill.WorkItemID
	driver.Content
}

func readContent(scan scan, c *content) error {
	r := &outmill.Record{}
	c.Record = r
	var due int64
	var joins, metadata string
	var history []byte
	err := scan((*[16]byte)(&c.id), &due, &r.MessageID, &r.CorrelationID, &r.CausationID, &r.TraceParent, &r.TraceState, &r.DedupKey, &joins,
		&r.LastError, &metadata, &r.Payload, &history)
	if err != nil {
		return err
	}
	c.History = string(history)
	c.set(driver.Time(due), joins, metadata)
	return nil
}

// set decodes what is no text of the record.
func (c *content) set(due driver.Time, joins, metadata string) {
	sqlkit.SetContent(c.Record, due, joins, metadata, c.Refuse)
}

// Load returns the content of rows.
func (t *tx) Load(ctx context.Context, rows []driver.Row, want driver.Want) ([]driver.Content, error) {
	contents := make([]driver.Content, len(rows))
	if len(rows) == 0 {
		return contents, nil
	}
	var found []content
	records := t.addLogLoad(rows, want, &found)
	loaded := t.addLoad(records, want)
	err := t.flush(ctx)
	found = append(found, *loaded...)
	byID := make(map[outmill.WorkItemID]*content, len(found))
	for i := range found {
		byID[found[i].id] = &found[i]
	}
	for i := range rows {
		if c := byID[rows[i].ID]; c != nil {
			contents[i] = c.Content
		}
	}
	return contents, err
}

func (t *tx) addLoad(rows []driver.Row, want driver.Want) *[]content {
	return collect(t, "load", []any{idsOf(rows, func(r *driver.Row) outmill.WorkItemID { return r.ID }), int(want)}, readContent)
}
