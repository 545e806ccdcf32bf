package driver

import (
	"context"
	sqldriver "database/sql/driver"
	"encoding/binary"
	"io"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/engine/driver"
)

// An append of many rows copies them to the log, in the binary form that this file writes. For each row that costs the process and the
// server less than an INSERT of lists, and it takes up to two round trips more.

// copyRows and copySize are from how many rows on, or several rows of how many bytes, an append copies. They are measured.
const (
	copyRows = 50
	copySize = 128 << 10
)

func isLarge(rows []driver.NewRow) bool {
	return len(rows) >= copyRows || len(rows) > 1 && sizeOf(rows) >= copySize
}

// copier is a sender that may be able to copy.
type copier interface {
	// copies reports whether it can.
	copies() bool
	copy(ctx context.Context, rows *copied) error
}

// copies returns what can copy the rows of an append to the log; nil is nothing.
func (t *tx) copies(rows []driver.NewRow) copier {
	if to, can := t.to.(copier); can && t.d.copies(rows) && to.copies() {
		return to
	}
	return nil
}

// copy copies rows to the log.
func (t *tx) copy(ctx context.Context, to copier, rows []driver.NewRow) error {
	t.d.log.pace.used.Store(true)
	c := &copied{rows: rows, event: t.log.event}
	// What a transaction knows by its first statement alone is of one moment.
	if t.own != nil || t.trips > 1 {
		if err := t.checkCopy(ctx, c); err != nil {
			return err
		}
	}
	c.table = pgx.Identifier{t.d.names.schema, t.d.names.prefix + "log_" + strconv.FormatInt(t.log.segment, 10)}
	defer c.close()
	if err := to.copy(ctx, c); err != nil {
		return err
	}
	if t.inserts && t.rides {
		return t.commit(ctx)
	}
	return nil
}

// checkCopy checks what log_insert checks.
func (t *tx) checkCopy(ctx context.Context, c *copied) error {
	same := false
	t.add("log_check", t.logCheckArgs(), func(scan scan) error {
		same = true
		return scan(&c.later, &c.event)
	})
	if t.own != nil {
		t.add("log_copying", nil, nil)
	}
	if err := t.flush(ctx); err != nil {
		return err
	}
	if !same {
		return t.stale()
	}
	t.state.Now += driver.Time(c.later)
	return nil
}

// copied are rows in PostgreSQL's binary form. pgx reads them in a goroutine of its own, which may still run behind a call whose connection
// has broken: close has it leave the rows alone.
type copied struct {
	table        pgx.Identifier
	later, event int64

	mu   sync.Mutex
	rows []driver.NewRow
	// begun says that the header was written, and over that the trailer was; rest was written, and is to be read.
	begun, over bool
	rest        []byte
}

func (c *copied) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows, c.rest, c.over = nil, nil, true
}

// Read writes as many rows as have room, and of a larger one the first part.
func (c *copied) Read(into []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.rest) == 0 {
		if c.over {
			return 0, io.EOF
		}
		c.rest = c.write(into[:0:len(into)])
	}
	n := copy(into, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

const (
	// copyHeader is the signature, no flags and no extension, and copyTrailer a row of -1 columns.
	copyHeader  = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"
	copyTrailer = "\xff\xff"
	// copyColumns are those that appendRow writes, in its order.
	copyColumns = "created_at, event, id, topic, key, message_id, tenant_id, correlation_id, causation_id, traceparent, tracestate, " +
		"dedup_key, metadata, payload"
	copyCount = 14
	// copyOther is what a row has beside metadata and payload, but for unusual ones.
	copyOther = 512
)

// write appends rows as long as there is room for them, and one at least.
func (c *copied) write(into []byte) []byte {
	if !c.begun {
		into, c.begun = append(into, copyHeader...), true
	}
	for ; len(c.rows) > 0; c.rows = c.rows[1:] {
		r := &c.rows[0]
		if need := len(r.Record.Payload) + len(r.Metadata) + copyOther; len(into) > 0 && len(into)+need > cap(into) {
			return into
		}
		into = c.appendRow(into, r)
	}
	c.over = true
	return append(into, copyTrailer...)
}

// appendRow appends a row: the number of its columns, and each of them behind its size, which is -1 for NULL.
func (c *copied) appendRow(into []byte, r *driver.NewRow) []byte {
	into = binary.BigEndian.AppendUint16(into, copyCount)
	into = appendNumber(into, int64(r.Created)+c.later)
	into = appendNumber(into, c.event)
	into = appendColumn(into, r.ID[:])
	into = appendColumn(into, r.Name())
	for _, text := range [...]string{
		r.Key, messageOf(r), r.Tenant, r.Record.CorrelationID, r.Record.CausationID, r.Record.TraceParent, r.Record.TraceState,
		r.Record.DedupKey, r.Metadata,
	} {
		if text == "" {
			into = append(into, copyNull...)
			continue
		}
		into = appendColumn(into, text)
	}
	if r.Record.Payload == nil {
		return append(into, copyNull...)
	}
	return appendColumn(into, r.Record.Payload)
}

const copyNull = "\xff\xff\xff\xff"

func appendNumber(into []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(into, 8), uint64(n))
}

func appendColumn[T string | []byte](into []byte, value T) []byte {
	return append(binary.BigEndian.AppendUint32(into, uint32(len(value))), value...)
}

// onConn copies on a connection. It needs only the right to insert: CopyFrom of pgx asks for the types of the columns, as a reader.
func onConn(ctx context.Context, conn *pgx.Conn, rows *copied) (err error) {
	if tracer, traces := conn.Config().Tracer.(pgx.CopyFromTracer); traces {
		ctx = tracer.TraceCopyFromStart(ctx, conn, pgx.TraceCopyFromStartData{TableName: rows.table})
		defer func() { tracer.TraceCopyFromEnd(ctx, conn, pgx.TraceCopyFromEndData{Err: err}) }()
	}
	_, err = conn.PgConn().CopyFrom(ctx, rows, "COPY "+rows.table.Sanitize()+" ("+copyColumns+") FROM STDIN (FORMAT binary)")
	return err
}

// conn is the connection below; nil if the caller's pgx.Tx hides it.
func (p onPgx) conn() *pgx.Conn {
	switch on := p.batcher.(type) {
	case *pgx.Conn:
		return on
	case pgx.Tx:
		return on.Conn()
	}
	return nil
}

func (p onPgx) copies() bool { return p.conn() != nil }

func (p onPgx) copy(ctx context.Context, rows *copied) error {
	return onConn(ctx, p.conn(), rows)
}

func (t *openTx) copies() bool { return true }

func (t *openTx) copy(ctx context.Context, rows *copied) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return onConn(ctx, t.tx.Conn(), rows)
}

// copies reports whether the driver below is pgx: see one.
func (p *onSQL) copies() bool { return !p.proven }

// copy sends a statement, in front of which pgx copies the rows: there it has the connection for itself.
func (p *onSQL) copy(ctx context.Context, rows *copied) error {
	_, err := p.handle.ExecContext(ctx, "SELECT", copying{rows})
	return withSession(ctx, nil, err)
}

// copying is the argument of a statement that copies.
type copying struct{ rows *copied }

// RewriteQuery implements pgx.QueryRewriter.
func (c copying) RewriteQuery(ctx context.Context, conn *pgx.Conn, text string, _ []any) (string, []any, error) {
	if err := provenOn(conn); err != nil {
		return "", nil, err
	}
	return text, nil, onConn(ctx, conn, c.rows)
}

// Value implements driver.Valuer.
func (copying) Value() (sqldriver.Value, error) { return nil, errNotPgx }
