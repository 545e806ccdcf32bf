package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver/internal/segments"
	"github.com/outmill/outmill/storekit"
)

// logDB is a schema with a log, for one test.
type logDB struct {
	pool   *pgxpool.Pool
	names  *names
	topics atomic.Int64
	tokens atomic.Int64
}

// newLogDB makes the tables. replace are texts of their functions, each with what stands there instead.
func newLogDB(t *testing.T, replace ...string) *logDB {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	config, err := pgxpool.ParseConfig(postgrestest.Database(t))
	require.NoError(t, err)
	config.MaxConns = 40
	config.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	db := &logDB{pool: pool, names: &names{schema: "log"}}
	tables, err := schemaFiles.ReadFile("schema/0001_tables.sql")
	require.NoError(t, err)
	functions := strings.NewReplacer(replace...).Replace(logSchema)
	_, err = pool.Exec(ctx, "CREATE SCHEMA log; "+db.names.in(string(tables))+"; "+db.names.in(functions), pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	return db
}

// logWorld has the registrations and the rows of a topic. The history is one of all topics, so the worlds of a logDB come one after the
// other.
type logWorld struct {
	testing.TB
	*logDB
	ctx      context.Context
	line     driver.Line
	readings []logReading
	stamp    int64
	texts    map[outmill.WorkItemID]string
	mu       sync.Mutex
	begun    []pgx.Tx
	// until is the end of the leases.
	until driver.Time
	// owns counts the claims: see claim.
	owns int
	// log gets what the upkeep logs.
	log *storekit.Log
	// segment is where all is written; nil is another one for each transaction.
	segment *int
}

func (db *logDB) world(t testing.TB) *logWorld {
	line := driver.Line{Topic: fmt.Sprint("topic", db.topics.Add(1))}
	w := &logWorld{
		TB: t, logDB: db, ctx: context.Background(), line: line, until: driver.Never, texts: map[outmill.WorkItemID]string{},
		log: storekit.NewLog(nil, "log", nil),
	}
	require.NoError(t, db.pool.QueryRow(w.ctx, db.names.in("SELECT stamp FROM {p:events}")).Scan(&w.stamp))
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
	// Whatever is done is done over all segments.
	segment := len(w.begun) % segments.Count
	if w.segment != nil {
		segment = *w.segment
	}
	return &logTx{Tx: tx, names: w.names, segment: segment}
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
	number, mark, err := tx.event(w.ctx, 1)
	require.NoError(w, err)
	change(tx, number, mark)
	w.stamp = tx.stamp
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
		w.exec(tx, `INSERT INTO {p:readings} (number, grp, topics, takes, ended, swept, dropping, begin_pos, begin_seen, end_pos)
			VALUES ($1, $2, $3, $4, 0, 0, false, $5, $6::text::pg_snapshot, 0)`, number, group, topics, r.takes, mark.pos, mark.seen)
		w.readings = append(w.readings, r)
	})
	return len(w.readings) - 1
}

func (w *logWorld) take(i int) {
	w.Helper()
	w.change(i, "takes", func(r *logReading, number int64, _ logMark) { r.takes = number })
}

// change is an event of a reading.
func (w *logWorld) change(i int, column string, set func(r *logReading, number int64, mark logMark)) {
	w.Helper()
	w.event(func(tx *logTx, number int64, mark logMark) {
		set(&w.readings[i], number, mark)
		w.exec(tx, `UPDATE {p:readings} SET `+column+` = $2 WHERE number = $1`, w.readings[i].number, number)
	})
}

func (w *logWorld) ends(i int) {
	w.Helper()
	w.change(i, "ended", func(r *logReading, number int64, mark logMark) { r.ended, r.end = number, mark })
}

// drop is a drop with all of its steps, which find nothing to give back.
func (w *logWorld) drop(group string) {
	w.Helper()
	for i, r := range w.readings {
		if r.group == group && r.ended == 0 {
			w.ends(i)
		}
	}
}

// expire is the end of a TTL, and the sweep behind it.
func (w *logWorld) expire(i int) {
	w.Helper()
	w.ends(i)
	w.sweep(i)
}

func (w *logWorld) sweep(i int) {
	w.Helper()
	w.change(i, "swept", func(r *logReading, number int64, _ logMark) { r.swept = number })
}

// lineOf is what a process knows of a group's line now: what waits, if it holds and has no other.
func (w *logWorld) lineOf(group string) logLine {
	w.Helper()
	chains := logChainsOf(w.readings, w.line.Topic)
	chain, reads := chains.of[group]
	if !reads {
		require.Contains(w, chains.readings, group, "%s reads nothing", group)
		chain = chains.waiting
	}
	return w.chainOf(chain)
}

// chainOf is what a process knows of a chain now.
func (w *logWorld) chainOf(chain int64) logLine {
	w.Helper()
	h := &logHistory{readings: w.readings, stamp: w.stamp}
	line, known := h.lineOf(w.line.Name(), chain)
	require.True(w, known, "chain %d has ended", chain)
	return *line
}

// page reads a page in the transaction.
func (w *logWorld) page(tx *logTx, line logLine, want int) logPage {
	w.Helper()
	p, err := tx.page(w.ctx, line, want)
	require.NoError(w, err)
	return p
}

// checkDue checks that a search over many chains finds of each what the chain says by itself, at the same moment.
func (w *logWorld) checkDue(tx *logTx, l logLine) {
	w.Helper()
	both := `SELECT {p:log_due}(($1::text[])[1], ($2::text::bigint[])[1], ($3::text::bigint[])[1],
		nullif(($4::text[])[1], '')::pg_snapshot, $5::bigint), (SELECT d.first FROM (` +
		w.names.text("log_due", false) + `) AS d)`
	for _, now := range []int64{1, math.MaxInt64} {
		var alone, among *int64
		require.NoError(w, tx.QueryRow(w.ctx, w.names.in(both), append(chainArgs([]*logLine{&l}), now)...).Scan(&alone, &among))
		require.Equal(w, alone, among)
	}
}

// takeOf takes all of a page for which decide says so, all if it is nil, and returns their texts.
func (w *logWorld) takeOf(tx *logTx, p logPage, decide func(r logRow) logFate) (logBatch, []string) {
	w.Helper()
	w.checkDue(tx, p.logLine)
	texts := []string{}
	b, err := tx.take(w.ctx, p, w.tokens.Add(1), logLease{owner: p.group, worker: "w", until: w.until}, func(r logRow) logFate {
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

// claim leases up to want rows in a transaction of its own. Where a claim of its own is possible, it gives what one by a page gives, and
// each second claim is one.
func (w *logWorld) claim(group string, want int) (logBatch, []string) {
	w.Helper()
	line := w.lineOf(group)
	tx := w.begin()
	own, expected, can := w.claimOwn(tx, line, want)
	w.owns++
	if can && w.owns%2 == 0 {
		w.commit(tx)
		return own, expected
	}
	require.NoError(w, tx.Rollback(w.ctx))
	tx = w.begin()
	b, texts := w.takeOf(tx, w.page(tx, line, want), nil)
	w.commit(tx)
	if can {
		require.Equal(w, expected, texts, "a claim of its own, and one by a page")
	}
	return b, texts
}

// claimOwn is a claim of its own in the transaction. can is false if it needs a page.
func (w *logWorld) claimOwn(tx *logTx, line logLine, want int) (b logBatch, texts []string, can bool) {
	w.Helper()
	if line.dropping || line.group == "" || w.until != driver.Never {
		return b, nil, false
	}
	// Two of four are without an order: it tries the lock itself, and asks for no key.
	keyed, tried := w.owns%4 < 2, line.lock(w.names)
	if keyed {
		require.NoError(w, tx.lock(w.ctx, line))
		tried = 0
	} else {
		_, err := tx.Exec(w.ctx, w.names.text("log_tables", false))
		require.NoError(w, err)
	}
	b = logBatch{topic: line.topic, chain: line.chain, token: w.tokens.Add(1)}
	given, until := 0, int64(0)
	args := line.args(schemaVersion, line.stamp, 0, line.group, line.group, "w", b.token, int64(time.Hour/time.Microsecond), want,
		1<<20, 1<<20, false, false, keyed, []string{""}, []string{}, []string{}, []string{}, tried)
	require.NoError(w, tx.QueryRow(w.ctx, w.names.text("log_claim", false), args...).Scan(&b.n, &given, &until))
	rows, err := tx.Query(w.ctx, w.names.text("log_claimed", false), b.topic, b.chain, b.token)
	require.NoError(w, err)
	texts = []string{}
	for rows.Next() {
		var id outmill.WorkItemID
		columns := make([]any, len(rows.RawValues()))
		var pos int64
		columns[0], columns[3] = &pos, (*[16]byte)(&id)
		require.NoError(w, rows.Scan(columns...))
		b.places, texts = append(b.places, pos), append(texts, w.texts[id])
	}
	require.NoError(w, rows.Err())
	require.Len(w, texts, max(given, 0))
	return b, texts, given >= 0
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
		AND get_bit(coalesce(b.done, repeat('0', b.size)::bit varying), r.ordinal) = 0 ORDER BY r.pos`), b.topic, b.chain, b.n, b.token)
	require.NoError(w, err)
	open, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (pos int64, err error) { return pos, row.Scan(&pos, &ranged) })
	require.NoError(w, err)
	return open, ranged
}
