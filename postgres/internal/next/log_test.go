package next

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
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

func TestLog(t *testing.T) {
	t.Parallel()
	db := newLogDB(t)
	for name, run := range map[string]func(w *logWorld){
		"each group reads what is written once": func(w *logWorld) {
			w.register("a", true)
			w.register("b", true)
			w.append("1", "2", "3")
			w.requireClaims("a", "1", "2", "3")
			w.requireClaims("b", "1", "2", "3")
		},
		"rows of a transaction that was open come late, once, and before later ones": func(w *logWorld) {
			w.register("a", true)
			late := w.open("l1", "l2")
			w.append("1", "2")
			w.requireClaims("a", "1", "2")
			w.append("3")
			w.commit(late)
			w.requireClaims("a", "l1", "l2", "3")
		},
		"a rolled back transaction leaves a hole that nobody waits for": func(w *logWorld) {
			w.register("a", true)
			gone := w.open("gone")
			w.append("1")
			w.requireClaims("a", "1")
			require.NoError(w, gone.Rollback(w.ctx))
			w.append("2")
			w.requireClaims("a", "2")
		},
		"a row that gets its number before a claim and its place behind it is not lost": func(w *logWorld) {
			w.register("a", true)
			early := w.begin()
			w.exec(early, "SELECT pg_current_xact_id()")
			w.append("1")
			w.requireClaims("a", "1")
			w.write(early, "2")
			w.append("3")
			w.requireClaims("a", "3")
			w.commit(early)
			w.requireClaims("a", "2")
		},
		"a row that gets its place between the cap and the page waits for the next claim": func(w *logWorld) {
			w.register("a", true)
			w.append("1")
			tx := w.begin()
			_, err := tx.Exec(w.ctx, w.names.text("lock", false), w.lineOf("a").lock(w.names))
			require.NoError(w, err)
			require.NoError(w, tx.readPlace(w.ctx))
			other := w.open("2") // its number is behind the horizon, and its place behind the cap
			w.append("3")
			_, got := w.takeOf(tx, w.page(tx, w.lineOf("a"), 9), nil)
			w.commit(tx)
			require.Equal(w, []string{"1"}, got)
			w.requireClaims("a", "3")
			w.commit(other)
			w.requireClaims("a", "2")
		},
		"a second page of a transaction keeps the cap": func(w *logWorld) {
			w.register("a", true)
			w.append("1")
			tx := w.begin()
			_, got := w.takeOf(tx, w.page(tx, w.lineOf("a"), 1), nil)
			require.Equal(w, []string{"1"}, got)
			other := w.open("2")
			w.append("3")
			require.Empty(w, w.page(tx, w.lineOf("a"), 9).rows)
			w.commit(tx)
			w.requireClaims("a", "3")
			w.commit(other)
			w.requireClaims("a", "2")
		},
		"two pages of a transaction do not forget who was open before the first": func(w *logWorld) {
			w.register("a", true)
			early, late := w.begin(), w.begin()
			w.exec(early, "SELECT pg_current_xact_id()")
			w.write(late, "late") // its number is the newest, so the snapshots do not list it
			w.write(early, "1", "2")
			w.commit(early)
			tx := w.begin()
			_, got := w.takeOf(tx, w.page(tx, w.lineOf("a"), 1), nil)
			_, more := w.takeOf(tx, w.page(tx, w.lineOf("a"), 1), nil)
			w.commit(tx)
			require.Equal(w, []string{"1", "2"}, append(got, more...))
			w.commit(late)
			w.requireClaims("a", "late")
		},
		"a transaction that has a number and no cap is refused": func(w *logWorld) {
			w.register("a", true)
			tx := w.begin()
			w.exec(tx, "SELECT pg_current_xact_id()")
			_, err := tx.page(w.ctx, w.lineOf("a"), 1)
			require.ErrorContains(w, err, "got its number before it read the sequence")
		},
		"late rows that a page has no room for are not lost": func(w *logWorld) {
			w.register("a", true)
			one, two := w.open("l1", "l2", "l3"), w.open("m1")
			w.write(one, "l4")
			w.append("1")
			w.requireClaims("a", "1")
			w.commit(one)
			w.commit(two)
			w.append("2")
			w.requireClaims("a", "l1", "l2", "l3", "m1", "l4", "2")
		},
		"a row that a claim leaves in the middle of its page comes again": func(w *logWorld) {
			w.register("a", true)
			w.append("1", "2", "3")
			tx := w.begin()
			b, got := w.takeOf(tx, w.page(tx, w.lineOf("a"), 9), func(r logRow) logFate {
				if w.texts[r.id] == "2" {
					return logUndecided
				}
				return logTaken
			})
			w.commit(tx)
			require.Equal(w, []string{"1", "3"}, got)
			open, ranged := w.inWork(b)
			require.Len(w, open, 2)
			require.False(w, ranged)
			w.append("4")
			w.requireClaims("a", "2", "4")
		},
		"a row that a claim moves to the records is read": func(w *logWorld) {
			w.register("a", true)
			w.append("1", "2", "3")
			tx := w.begin()
			_, got := w.takeOf(tx, w.page(tx, w.lineOf("a"), 9), func(r logRow) logFate {
				if w.texts[r.id] == "2" {
					return logMoved
				}
				return logTaken
			})
			w.commit(tx)
			require.Equal(w, []string{"1", "3"}, got)
			w.requireClaims("a")
		},
		"a claim that is undone gives its rows again": func(w *logWorld) {
			w.register("a", true)
			w.append("1")
			tx := w.begin()
			_, got := w.takeOf(tx, w.page(tx, w.lineOf("a"), 9), nil)
			require.Equal(w, []string{"1"}, got)
			require.NoError(w, tx.Rollback(w.ctx))
			w.requireClaims("a", "1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(db.world(t))
		})
	}
}

// TestLog_Readings is the table of docs/postgres-next.md: each event with rows that wait, and with a transaction that is open across it.
func TestLog_Readings(t *testing.T) {
	t.Parallel()
	db := newLogDB(t)
	for name, run := range map[string]func(w *logWorld){
		"the first group of a topic": func(w *logWorld) {
			w.append("1")
			across := w.open("2")
			w.append("3")
			w.register("a", true)
			w.append("4")
			w.requireClaims("a", "1", "3", "4")
			w.commit(across)
			w.requireClaims("a", "2")
		},
		"a later group": func(w *logWorld) {
			w.register("a", true)
			w.append("1")
			across := w.open("2")
			w.append("3")
			w.register("b", true)
			w.append("4")
			w.requireClaims("b", "4")
			w.commit(across)
			w.requireClaims("b", "2")
			w.requireClaims("a", "1", "2", "3", "4")
		},
		"patterns that meet a topic's first row later": func(w *logWorld) {
			w.register("a", true)
			across := w.open("1")
			w.register("b", true)
			w.append("2")
			w.commit(across)
			w.requireClaims("a", "1", "2")
			w.requireClaims("b", "1", "2")
		},
		"a second selection of a group, and the end of the first": func(w *logWorld) {
			first := w.register("a", true)
			w.append("1")
			across := w.open("2")
			w.register("a", true)
			w.append("3")
			w.expire(first)
			w.append("4")
			w.requireClaims("a", "1", "3", "4")
			w.commit(across)
			w.requireClaims("a", "2")
		},
		"a group is dropped beside another one": func(w *logWorld) {
			w.register("a", true)
			w.register("b", true)
			w.append("1")
			across := w.open("2")
			w.drop("a")
			w.commit(across)
			w.append("3")
			w.requireClaims("b", "1", "2", "3")
			w.register("a", true)
			w.append("4")
			w.requireClaims("a", "4")
		},
		"a group is dropped alone, and the next one goes on": func(w *logWorld) {
			w.register("a", true)
			w.append("1", "2", "3")
			across := w.open("4")
			_, got := w.claim("a", 2)
			require.Equal(w, []string{"1", "2"}, got)
			w.drop("a")
			w.append("5")
			w.register("b", true)
			w.requireClaims("b", "3", "5")
			w.commit(across)
			w.requireClaims("b", "4")
		},
		"a group is dropped alone, and comes again": func(w *logWorld) {
			w.register("a", true)
			w.append("1", "2")
			w.claim("a", 1)
			w.drop("a")
			w.append("3")
			w.register("a", true)
			w.requireClaims("a", "2", "3")
		},
		"the end of a TTL": func(w *logWorld) {
			a := w.register("a", true)
			w.append("1", "2")
			across := w.open("3")
			w.claim("a", 1)
			w.expire(a)
			w.append("4")
			w.register("b", true)
			w.requireClaims("b", "4")
			w.commit(across)
			w.requireClaims("b", "3")
		},
		"a group that holds, and takes": func(w *logWorld) {
			w.append("1")
			across := w.open("2")
			a := w.register("a", false)
			w.append("3")
			w.requireClaims("a")
			w.take(a)
			w.requireClaims("a", "1", "3")
			w.commit(across)
			w.requireClaims("a", "2")
		},
		"a worker of a dropped group gets nothing": func(w *logWorld) {
			w.register("a", true)
			w.append("1")
			stale := w.lineOf("a")
			w.drop("a")
			tx := w.begin()
			require.Empty(w, w.page(tx, stale, 9).rows)
			w.commit(tx)
			w.register("b", true)
			w.requireClaims("b", "1")
		},
		"a claim that was under way when its group was dropped": func(w *logWorld) {
			w.register("a", true)
			w.append("1", "2")
			tx := w.begin()
			p := w.page(tx, w.lineOf("a"), 1)
			w.drop("a")
			w.register("b", true)
			next := make(chan []string)
			go func() {
				defer close(next)
				_, texts := w.claim("b", 9) // waits for the chain
				next <- texts
			}()
			_, got := w.takeOf(tx, p, nil)
			w.commit(tx)
			require.Equal(w, []string{"1"}, got)
			require.Equal(w, []string{"2"}, <-next)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(db.world(t))
		})
	}
}

func TestLog_Batches(t *testing.T) {
	t.Parallel()
	db := newLogDB(t)
	filled := func(w *logWorld) logBatch {
		w.register("a", true)
		w.append("1", "2", "3")
		b, got := w.claim("a", 9)
		require.Equal(w, []string{"1", "2", "3"}, got)
		return b
	}
	for name, run := range map[string]func(w *logWorld){
		"a batch is a range, and its end one row": func(w *logWorld) {
			b := filled(w)
			open, ranged := w.inWork(b)
			require.Equal(w, b.places, open)
			require.True(w, ranged)
			require.Equal(w, []int32{0, 1, 2}, w.settle(b))
			open, _ = w.inWork(b)
			require.Empty(w, open)
			require.Empty(w, w.settle(b), "it has ended")
		},
		"parts of a batch are settled once, and the last one ends it": func(w *logWorld) {
			b := filled(w)
			require.Equal(w, []int32{1}, w.settle(b, 1))
			require.Equal(w, []int32{0}, w.settle(b, 0, 1))
			open, _ := w.inWork(b)
			require.Equal(w, b.places[2:], open)
			require.Equal(w, []int32{2}, w.settle(b))
			require.Empty(w, w.settle(b, 0, 1, 2))
		},
		"a late row in the range of a batch is none of it": func(w *logWorld) {
			w.register("a", true)
			w.append("1")
			late := w.open("2")
			w.append("3")
			b, got := w.claim("a", 9)
			require.Equal(w, []string{"1", "3"}, got)
			w.commit(late)
			open, ranged := w.inWork(b)
			require.Equal(w, b.places, open)
			require.True(w, ranged)
			odd, got := w.claim("a", 9)
			require.Equal(w, []string{"2"}, got)
			_, ranged = w.inWork(odd)
			require.False(w, ranged)
		},
		"another token settles nothing": func(w *logWorld) {
			b := filled(w)
			b.token++
			require.Empty(w, w.settle(b))
		},
		"a skipped row is not read, and a row that was read is not skipped": func(w *logWorld) {
			b := filled(w)
			w.append("4", "5")
			late := w.open("6")
			w.append("7")
			tx := w.begin()
			p := w.page(tx, w.lineOf("a"), 9)
			require.Len(w, p.rows, 3)
			skipped, err := tx.skip(w.ctx, w.lineOf("a"), append(slices.Clone(b.places), p.rows[0].pos))
			require.NoError(w, err)
			require.Equal(w, []int64{p.rows[0].pos}, skipped)
			w.commit(tx)
			rest, got := w.claim("a", 9)
			require.Equal(w, []string{"5", "7"}, got)
			_, ranged := w.inWork(rest)
			require.False(w, ranged)
			w.commit(late)
			w.requireClaims("a", "6")
		},
		"a late row can be skipped": func(w *logWorld) {
			w.register("a", true)
			late := w.open("1", "2")
			w.append("3")
			w.requireClaims("a", "3")
			w.commit(late)
			tx := w.begin()
			p := w.page(tx, w.lineOf("a"), 9)
			require.Len(w, p.rows, 2)
			skipped, err := tx.skip(w.ctx, w.lineOf("a"), []int64{p.rows[0].pos})
			require.NoError(w, err)
			require.Len(w, skipped, 1)
			w.commit(tx)
			w.requireClaims("a", "2")
		},
		"two settlements of one batch share its rows": func(w *logWorld) {
			b := filled(w)
			tx := w.begin()
			first, err := tx.settle(w.ctx, b, []int32{0, 1})
			require.NoError(w, err)
			second := make(chan []int32)
			go func() {
				defer close(second)
				second <- w.settle(b) // waits for the batch
			}()
			w.commit(tx)
			require.Equal(w, []int32{0, 1}, first)
			require.Equal(w, []int32{2}, <-second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(db.world(t))
		})
	}
}
