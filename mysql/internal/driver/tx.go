package driver

import (
	"context"
	"errors"
	"fmt"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// tx is a transaction: the driver's own, or the caller's.
type tx struct {
	d  *Driver
	on sqlkit.Handle
	// locks says that searches may lock rows: the transaction is the driver's own, and writes.
	locks bool
	state driver.State
	// caller is the transaction of a caller in which a guess of the state inserts: see AppendWithin.
	caller sqlkit.Handle
	// packet is the largest statement that the server takes; 0 is unknown.
	packet int
	storekit.AfterCommit
}

var _ driver.Tx = (*tx)(nil)

// on returns a tx that knows nothing of the state yet.
func (d *Driver) on(handle sqlkit.Handle) *tx { return &tx{d: d, on: handle} }

// State returns what the transaction knows about the database.
func (t *tx) State() driver.State { return t.state }

// sqlState begins each transaction.
const sqlState = `SELECT m.version, m.compatible, m.routes, m.pauses, {now} AS now, EXISTS (SELECT 1 FROM {p:notes}) AS notes,
	EXISTS (SELECT 1 FROM {p:notes} WHERE paused = 1) AS paused,
	EXISTS (SELECT 1 FROM {p:records} FORCE INDEX (line) WHERE grp = x'' AND slot IN (0, 3)) AS unrouted, @@max_allowed_packet AS packet,
	/*M!100000 1 OR */ 0 AS compound
FROM {p:meta} AS m WHERE m.only_row = 1`

func (t *tx) readState(ctx context.Context) error {
	s, version, compound := &t.state, storekit.SchemaVersion{}, false
	err := t.each(ctx, func(scan scan) error {
		return scan(&version.Version, &version.Compatible, &s.Routes, &s.Pauses, (*int64)(&s.Now), &s.Notes, &s.Paused, &s.Unrouted, &t.packet,
			&compound)
	}, sqlState)
	if err == nil {
		err = version.Check(schemaVersion)
	}
	if err == nil {
		// A caller's transaction may see an older state than others, or one that is never committed. A guess of it is checked.
		t.d.last.Store(&known{t.state, t.packet, compound})
	}
	return err
}

// The values of sqlInTx.
const (
	unknown = -1
	closed  = 0
)

type scan = sqlkit.Scan

// errTooLarge says that a statement is too large for the server, which would end the connection.
var errTooLarge = errors.New("max_allowed_packet of the server is too small")

// fits returns an error if the server does not take a statement with these bytes.
func (t *tx) fits(bytes int) error {
	const spare = 1 << 10
	if t.packet > 0 && bytes+spare > t.packet {
		return fmt.Errorf("%w: %w: it is %d, and a statement has %d bytes: raise it, or publish a reference to the data",
			outmill.ErrInvalidRecord, errTooLarge, t.packet, bytes)
	}
	return nil
}

// each runs a statement, and has read read each of its rows.
func (t *tx) each(ctx context.Context, read func(scan scan) error, template string, values ...any) error {
	return t.eachOf(ctx, []func(scan scan) error{read}, template, values...)
}

// eachOf is each for a statement with several results, of each of which a function of its own reads the rows.
func (t *tx) eachOf(ctx context.Context, reads []func(scan scan) error, template string, values ...any) (err error) {
	text, parameters := t.d.text(template, values...)
	if err := t.fits(len(text)); err != nil {
		return err
	}
	rows, err := t.on.QueryContext(ctx, text, parameters...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for i, read := range reads {
		if i > 0 && !rows.NextResultSet() {
			break
		}
		for rows.Next() {
			if err := read(rows.Scan); err != nil {
				return err
			}
		}
	}
	return rows.Err()
}

func sizeOf(parameters []any) (bytes int) {
	for _, p := range parameters {
		bytes += len(p.([]byte))
	}
	return bytes
}

// exec runs a statement, and returns the number of rows that it has changed.
func (t *tx) exec(ctx context.Context, template string, values ...any) (int, error) {
	text, parameters := t.d.text(template, values...)
	if err := t.fits(len(text) + sizeOf(parameters)); err != nil {
		return 0, err
	}
	result, err := t.on.ExecContext(ctx, text, parameters...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

func (t *tx) run(ctx context.Context, template string, values ...any) error {
	_, err := t.exec(ctx, template, values...)
	return err
}

// list returns the rows of a statement.
func list[T any](ctx context.Context, t *tx, read func(scan scan, item *T) error, template string, values ...any) (found []T, err error) {
	err = t.each(ctx, sqlkit.Into(&found, read), template, values...)
	return found, err
}

const (
	// sqlRaise changes the generations. They come from the clock, so that a replica which lacks the last commits gives no generation that a
	// process knows.
	sqlRaise = `UPDATE {p:meta} SET routes = IF(?, GREATEST(routes + 1, {now}), routes), pauses = IF(?, GREATEST(pauses + 1, {now}), pauses)
WHERE only_row = 1`
	sqlBump = `SELECT routes, pauses FROM {p:meta} WHERE only_row = 1 FOR UPDATE`
)

// Bump raises generations, and locks them.
func (t *tx) Bump(ctx context.Context, routes, pauses bool) (g driver.Generations, err error) {
	if routes || pauses {
		if err := t.run(ctx, sqlRaise, routes, pauses); err != nil {
			return g, err
		}
	}
	err = t.each(ctx, func(scan scan) error { return scan(&g.Routes, &g.Pauses) }, sqlBump)
	t.state.Generations = g
	return g, err
}
