package driver

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/storekit/sqlkit"
)

// scan reads the columns of a row.
type scan = sqlkit.Scan

// step is one statement, and what becomes of its result.
type step struct {
	text string
	args []any
	// row is called for each row; nil reads none.
	row func(scan scan) error
	// raw is called instead of row where the sender is pgx.
	raw func(row rawRow) error
	// done gets the number of rows that were changed or returned; it may be nil.
	done func(n int) error
}

// sender sends steps in their order, in one round trip if it can.
type sender interface {
	send(ctx context.Context, steps []step) error
}

// batcher is a connection or a transaction of pgx.
type batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// onPgx sends steps as a batch. pgx sends a batch in two packets, and a single query in one.
type onPgx struct{ batcher }

func (p onPgx) send(ctx context.Context, steps []step) error {
	if _, own := p.batcher.(*pgx.Conn); own {
		return p.sendAll(ctx, steps)
	}
	steps, err := p.saveFirst(ctx, steps)
	if err != nil {
		return err
	}
	err = p.sendAll(ctx, steps)
	p.keepPrepared(steps, err)
	return err
}

func (p onPgx) sendAll(ctx context.Context, steps []step) error {
	if len(steps) == 1 {
		rows, err := p.Query(ctx, steps[0].text, steps[0].args...)
		if err != nil {
			return err
		}
		return steps[0].read(rows)
	}
	batch := &pgx.Batch{}
	queue(batch, steps)
	return readBatch(p.SendBatch(ctx, batch), steps)
}

func queue(batch *pgx.Batch, steps []step) {
	for _, s := range steps {
		batch.Queue(s.text, s.args...)
	}
}

func readBatch(results pgx.BatchResults, steps []step) error {
	err := readSteps(results, steps)
	// If an error was read before, Close returns it again.
	return cmp.Or(err, results.Close())
}

func readSteps(results pgx.BatchResults, steps []step) error {
	for _, s := range steps {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		if err := s.read(rows); err != nil {
			return err
		}
	}
	return nil
}

func (s step) read(rows pgx.Rows) error {
	defer rows.Close()
	for rows.Next() {
		var err error
		switch {
		case s.raw != nil:
			err = s.raw(rawRow{values: rows.RawValues(), binary: rows.FieldDescriptions()[0].Format == pgx.BinaryFormatCode})
		case s.row != nil:
			err = s.row(rows.Scan)
		}
		if err != nil {
			return err
		}
	}
	rows.Close()
	if err := rows.Err(); err != nil || s.done == nil {
		return err
	}
	return s.done(int(rows.CommandTag().RowsAffected()))
}

// onSQL sends the steps of a caller's transaction of database/sql, one after the other. The first one proves that there is still a
// transaction.
type onSQL struct {
	handle sqlkit.Handle
	proven bool
}

func (p *onSQL) send(ctx context.Context, steps []step) error {
	for _, s := range steps {
		if err := p.one(ctx, s); err != nil {
			return withSession(ctx, nil, err)
		}
	}
	return nil
}

func (p *onSQL) one(ctx context.Context, s step) error {
	args := make([]any, 1, 1+len(s.args))
	args[0] = proof{}
	for _, arg := range s.args {
		args = append(args, literal(arg))
	}
	if !p.proven {
		err := p.query(ctx, s, args)
		if !errors.Is(err, errNotPgx) {
			return err
		}
		if err := provenSQL(ctx, p.handle); err != nil {
			return err
		}
		p.proven = true
	}
	return p.query(ctx, s, args[1:])
}

func (p *onSQL) query(ctx context.Context, s step, args []any) (err error) {
	if s.row == nil {
		result, err := p.handle.ExecContext(ctx, s.text, args...)
		if err != nil || s.done == nil {
			return err
		}
		n, err := result.RowsAffected()
		return errors.Join(err, s.done(int(n)))
	}
	rows, err := p.handle.QueryContext(ctx, s.text, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	n := 0
	for ; rows.Next(); n++ {
		if err := s.row(func(into ...any) error { return rows.Scan(forSQL(into)...) }); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil || s.done == nil {
		return err
	}
	return s.done(n)
}

// forSQL replaces what database/sql cannot scan into.
func forSQL(into []any) []any {
	for i, target := range into {
		switch target := target.(type) {
		case *[16]byte:
			into[i] = (*uuid.UUID)(target)
		case *[]byte:
			into[i] = sqlkit.Bytes(target)
		}
	}
	return into
}

// Lists are texts in PostgreSQL's form of an array, which the statements cast, but for lists of texts and of bytes. pgx encodes a
// list of numbers with two allocations for each, and every driver of database/sql takes a text.

func listOf[T any](list []T, item func(into []byte, item *T) []byte) string {
	text := make([]byte, 1, 2+12*len(list))
	text[0] = '{'
	for i := range list {
		if i > 0 {
			text = append(text, ',')
		}
		text = item(text, &list[i])
	}
	return string(append(text, '}'))
}

// numbersOf is the list of a number of each item.
func numbersOf[T any, N ~int | ~int64](list []T, of func(*T) N) string {
	return listOf(list, func(into []byte, item *T) []byte { return strconv.AppendInt(into, int64(of(item)), 10) })
}

// idsOf is the list of an id of each item.
func idsOf[T any, ID ~[16]byte](list []T, of func(*T) ID) string {
	return listOf(list, func(into []byte, item *T) []byte {
		id := of(item)
		return hex.AppendEncode(into, id[:])
	})
}

func boolsOf[T any](list []T, of func(*T) bool) string {
	return listOf(list, func(into []byte, item *T) []byte { return strconv.AppendBool(into, of(item)) })
}

func textsOf[T any](list []T, of func(*T) string) []string {
	texts := make([]string, len(list))
	for i := range list {
		texts[i] = of(&list[i])
	}
	return texts
}

// literal converts an argument to a type that every driver of database/sql accepts.
func literal(arg any) any {
	switch list := arg.(type) {
	case []string:
		return listOf(list, appendText)
	case [][]byte:
		return listOf(list, func(into []byte, item *[]byte) []byte {
			return appendBytes(into, *item)
		})
	}
	return arg
}

// appendText adds an item to a list of texts.
func appendText(into []byte, item *string) []byte {
	into = append(into, '"')
	into = append(into, escape.Replace(*item)...)
	return append(into, '"')
}

// appendBytes adds an item to a list of bytes.
func appendBytes(into, item []byte) []byte {
	return append(hex.AppendEncode(append(into, `"\\x`...), item), '"')
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
