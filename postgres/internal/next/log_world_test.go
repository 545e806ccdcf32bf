package next

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
)

// logDB is a schema with a log, for one test.
type logDB struct {
	pool   *pgxpool.Pool
	names  *names
	events atomic.Int64
	topics atomic.Int64
}

func newLogDB(t *testing.T) *logDB {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	config, err := pgxpool.ParseConfig(postgrestest.Database(t))
	require.NoError(t, err)
	config.MaxConns = 40
	pool, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	db := &logDB{pool: pool, names: &names{schema: "next"}}
	tables, err := schemaFiles.ReadFile("schema/0001_tables.sql")
	require.NoError(t, err)
	_, err = pool.Exec(ctx, "CREATE SCHEMA next; "+db.names.in(string(tables))+"; "+db.names.in(logSchema), pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	return db
}

// logWorld has the registrations and the rows of a topic.
type logWorld struct {
	testing.TB
	*logDB
	ctx      context.Context
	line     driver.Line
	readings []logReading
	texts    map[outmill.WorkItemID]string
	mu       sync.Mutex
	begun    []pgx.Tx
}

func (db *logDB) world(t testing.TB) *logWorld {
	line := driver.Line{Topic: fmt.Sprint("topic", db.topics.Add(1))}
	w := &logWorld{TB: t, logDB: db, ctx: context.Background(), line: line, texts: map[outmill.WorkItemID]string{}}
	t.Cleanup(w.close)
	return w
}

// close ends the transactions that are open.
func (w *logWorld) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, tx := range w.begun {
		_ = tx.Rollback(w.ctx)
	}
	w.begun = nil
}

func (w *logWorld) begin() *logTx {
	w.Helper()
	tx, err := w.pool.BeginTx(w.ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	require.NoError(w, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = append(w.begun, tx)
	return &logTx{Tx: tx, names: w.names}
}

func (w *logWorld) commit(tx *logTx) {
	w.Helper()
	require.NoError(w, tx.Commit(w.ctx))
}

// write appends a row for each text, in the transaction.
func (w *logWorld) write(tx *logTx, texts ...string) {
	w.Helper()
	rows := make([]driver.NewRow, len(texts))
	for i, text := range texts {
		id := outmill.NewWorkItemID()
		w.texts[id] = text
		rows[i] = driver.NewRow{Record: &outmill.Record{Payload: []byte(text)}, Message: id.String()}
		rows[i].ID, rows[i].Line, rows[i].Key = id, w.line, text[:1]
	}
	require.NoError(w, tx.append(w.ctx, rows))
}

// append writes and commits.
func (w *logWorld) append(texts ...string) {
	w.Helper()
	tx := w.begin()
	w.write(tx, texts...)
	w.commit(tx)
}

// open begins a transaction and writes in it.
func (w *logWorld) open(texts ...string) *logTx {
	w.Helper()
	tx := w.begin()
	w.write(tx, texts...)
	return tx
}

// event runs change in a transaction with the number and the mark of a new event.
func (w *logWorld) event(change func(tx *logTx, number int64, mark logMark)) {
	w.Helper()
	tx := w.begin()
	require.NoError(w, tx.readPlace(w.ctx))
	mark := logMark{pos: *tx.place}
	require.NoError(w, tx.QueryRow(w.ctx, "SELECT pg_current_snapshot()::text, pg_current_xact_id()::text").Scan(&mark.seen, &mark.horizon))
	change(tx, w.events.Add(1), mark)
	w.commit(tx)
}

func (w *logWorld) exec(tx *logTx, template string, args ...any) {
	w.Helper()
	_, err := tx.Exec(w.ctx, w.names.in(template), args...)
	require.NoError(w, err)
}

// register begins a reading, and returns its index.
func (w *logWorld) register(group string, takes bool) int {
	w.Helper()
	w.event(func(tx *logTx, number int64, mark logMark) {
		r := logReading{number: number, group: group, begin: mark}
		if takes {
			r.takes = number
		}
		topics, err := json.Marshal(r.topics)
		require.NoError(w, err)
		w.exec(tx, `INSERT INTO {p:readings} (number, grp, topics, takes, ended, dropped, begin_pos, begin_seen, begin_horizon, end_pos)
			VALUES ($1, $2, $3, $4, 0, false, $5, $6::text::pg_snapshot, $7::text::xid8, 0)`,
			number, group, topics, r.takes, mark.pos, mark.seen, mark.horizon)
		w.readings = append(w.readings, r)
	})
	return len(w.readings) - 1
}

func (w *logWorld) take(i int) {
	w.Helper()
	w.event(func(tx *logTx, number int64, _ logMark) {
		w.exec(tx, `UPDATE {p:readings} SET takes = $2 WHERE number = $1`, w.readings[i].number, number)
		w.readings[i].takes = number
	})
}

// end ends the readings for which ends is true.
func (w *logWorld) end(dropped bool, ends func(r logReading) bool) {
	w.Helper()
	w.event(func(tx *logTx, number int64, mark logMark) {
		for i := range w.readings {
			if r := &w.readings[i]; r.ended == 0 && ends(*r) {
				r.ended, r.dropped, r.end = number, dropped, mark
				w.exec(tx, `UPDATE {p:readings} SET ended = $2 WHERE number = $1`, r.number, number)
			}
		}
	})
}

func (w *logWorld) drop(group string) {
	w.Helper()
	w.end(true, func(r logReading) bool { return r.group == group })
}

func (w *logWorld) expire(i int) {
	w.Helper()
	w.end(false, func(r logReading) bool { return r.number == w.readings[i].number })
}

// lineOf is what a process knows of a group's line now.
func (w *logWorld) lineOf(group string) logLine {
	w.Helper()
	chains := logChainsOf(w.readings, w.line.Topic)
	chain, reads := chains.of[group]
	require.True(w, reads, "%s reads nothing", group)
	l := logLine{line: logLineOf(w.line), chain: chain, group: group, begin: logChainBegin(w.readings, chain)}
	for _, r := range chains.readings[group] {
		l.readings = append(l.readings, r.number)
	}
	return l
}

// page reads a page in the transaction.
func (w *logWorld) page(tx *logTx, line logLine, want int) logPage {
	w.Helper()
	p, err := tx.page(w.ctx, line, want)
	require.NoError(w, err)
	return p
}

// takeOf takes all of a page for which decide says so, all if it is nil, and returns their texts.
func (w *logWorld) takeOf(tx *logTx, p logPage, decide func(r logRow) logFate) (logBatch, []string) {
	w.Helper()
	texts := []string{}
	b, err := tx.take(w.ctx, p, w.events.Add(1), logLease{owner: p.group, worker: "w", until: 1}, func(r logRow) logFate {
		fate := logTaken
		if decide != nil {
			fate = decide(r)
		}
		if fate == logTaken {
			texts = append(texts, w.texts[r.id])
		}
		return fate
	})
	require.NoError(w, err)
	return b, texts
}

// claim leases up to want rows in a transaction of its own.
func (w *logWorld) claim(group string, want int) (logBatch, []string) {
	w.Helper()
	tx := w.begin()
	b, texts := w.takeOf(tx, w.page(tx, w.lineOf(group), want), nil)
	w.commit(tx)
	return b, texts
}

// requireClaims checks what the group's claims give in order, until nothing is left.
func (w *logWorld) requireClaims(group string, want ...string) {
	w.Helper()
	got := []string{}
	for range 1 + len(w.texts) {
		_, texts := w.claim(group, 2)
		if len(texts) == 0 {
			break
		}
		got = append(got, texts...)
	}
	require.Equal(w, append([]string{}, want...), got, group)
}

// settle settles in a transaction of its own.
func (w *logWorld) settle(b logBatch, ordinals ...int32) []int32 {
	w.Helper()
	tx := w.begin()
	won, err := tx.settle(w.ctx, b, ordinals)
	require.NoError(w, err)
	w.commit(tx)
	return won
}

// inWork are the places of the batch that are neither settled nor moved, and whether it is a range.
func (w *logWorld) inWork(b logBatch) (open []int64, ranged bool) {
	w.Helper()
	rows, err := w.pool.Query(w.ctx, w.names.in(`SELECT r.pos, b.positions IS NULL FROM {p:log_in_work}($1, $2) AS b
		CROSS JOIN LATERAL {p:log_rows_of}(b) AS r WHERE b.n = $3 AND b.token = $4
		AND get_bit(coalesce(b.done, repeat('0', b.size)::bit varying), r.ordinal) = 0 ORDER BY r.pos`), b.line, b.chain, b.n, b.token)
	require.NoError(w, err)
	open, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (pos int64, err error) { return pos, row.Scan(&pos, &ranged) })
	require.NoError(w, err)
	return open, ranged
}
