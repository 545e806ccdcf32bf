//go:build unix

package chaos_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
)

const (
	writerCount = 6
	keyCount    = 12
	// txWithin bounds a writer's transaction.
	txWithin = 10 * time.Second
)

const tables = `
CREATE TABLE accounts (key text PRIMARY KEY, n int NOT NULL);
CREATE TABLE ledger (uuid text PRIMARY KEY, key text NOT NULL, n int NOT NULL)`

func keyName(i int) string { return "account-" + strconv.Itoa(i) }

// writers write to the ledger and publish what they wrote, in one transaction.
type writers struct {
	store *postgres.Store
	db    *sql.DB
	pub   *publisher.Publisher
	topic string
	work  sync.WaitGroup
	stop  chan struct{}
	// end lets each writer finish its transaction.
	end func()

	mu sync.Mutex
	// told are the messages of transactions that were reported as committed.
	told map[string]entry
	// rolledBack counts the messages that the writers took back on purpose.
	rolledBack int
	trouble    map[string]int
	strange    []string
}

func newWriters(t *testing.T, databaseURL, topic string) *writers {
	t.Helper()
	store, err := postgres.Open(t.Context(), databaseURL, postgres.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	pub, err := publisher.New(store, publisher.Config{RequireTx: true, PublishTimeout: txWithin}, nil)
	require.NoError(t, err)
	config, err := pgx.ParseConfig(databaseURL)
	require.NoError(t, err)
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	w := &writers{
		store: store, db: db, pub: pub, topic: topic,
		stop: make(chan struct{}), told: map[string]entry{}, trouble: map[string]int{},
	}
	w.end = sync.OnceFunc(func() {
		close(w.stop)
		w.work.Wait()
	})
	t.Cleanup(w.end)
	return w
}

func upTo(dice *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(dice.Int64N(int64(d)))
}

func (w *writers) start(seed uint64) {
	for i := range writerCount {
		w.work.Go(func() { w.write(rand.New(rand.NewPCG(seed, uint64(i)+1))) })
	}
}

func (w *writers) write(dice *rand.Rand) {
	for {
		pause := upTo(dice, 40*time.Millisecond)
		if err := w.transact(dice); err != nil && !errors.Is(err, errChangedMind) {
			w.note(err)
			pause = 100 * time.Millisecond
		}
		select {
		case <-w.stop:
			return
		case <-time.After(pause):
		}
	}
}

// transact runs one transaction and keeps account of what was promised.
func (w *writers) transact(dice *rand.Rand) error {
	ctx, cancel := context.WithTimeout(context.Background(), txWithin)
	defer cancel()
	j := &job{w: w, dice: dice, keys: chooseKeys(dice), written: map[string]entry{}}
	run := w.inPgx
	if dice.IntN(3) == 0 {
		run = w.inSQL
	}
	err := run(ctx, j)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rolledBack += j.takenBack
	switch {
	case err == nil:
		maps.Copy(w.told, j.written)
	case errors.Is(err, errChangedMind):
		w.rolledBack += len(j.written)
	}
	return err
}

// chooseKeys returns one key or two, in their order, lest two transactions wait
// for each other.
func chooseKeys(dice *rand.Rand) []string {
	keys := []string{keyName(dice.IntN(keyCount))}
	if other := keyName(dice.IntN(keyCount)); dice.IntN(4) == 0 && other != keys[0] {
		keys = append(keys, other)
	}
	slices.Sort(keys)
	return keys
}

var errChangedMind = errors.New("changed my mind")

// job is what one transaction does.
type job struct {
	w    *writers
	dice *rand.Rand
	keys []string
	// written counts only if the transaction commits.
	written map[string]entry
	// takenBack counts messages of savepoints that were rolled back.
	takenBack int
}

// session is a transaction of either kind.
type session interface {
	queryInt(ctx context.Context, text string, args ...any) (int, error)
	exec(ctx context.Context, text string, args ...any) error
	// savepoint runs fn in a part of the transaction and takes that back.
	savepoint(ctx context.Context, fn func(s session) error) error
	// handle is what postgres.Store.WithTx takes.
	handle() any
}

// do is the body of the transaction.
func (j *job) do(ctx context.Context, s session) error {
	if j.dice.IntN(6) == 0 {
		var written map[string]entry
		err := s.savepoint(ctx, func(s session) (err error) {
			written, err = j.book(ctx, s)
			return err
		})
		if err != nil {
			return err
		}
		j.takenBack += len(written)
	}
	written, err := j.book(ctx, s)
	if err != nil {
		return err
	}
	maps.Copy(j.written, written)
	if j.dice.IntN(20) == 0 {
		time.Sleep(upTo(j.dice, 300*time.Millisecond))
	}
	if j.dice.IntN(6) == 0 {
		return errChangedMind
	}
	return nil
}

// book writes up to three entries for each key and publishes them, some as the
// steps of a join.
func (j *job) book(ctx context.Context, s session) (map[string]entry, error) {
	written := map[string]entry{}
	var messages []*message.Message
	for _, key := range j.keys {
		last, err := s.queryInt(ctx, "SELECT n FROM accounts WHERE key = $1 FOR UPDATE", key)
		if err != nil {
			return nil, err
		}
		for range 1 + j.dice.IntN(3) {
			last++
			msg := message.NewMessage(watermill.NewUUID(), []byte(strconv.Itoa(last)))
			outmill.SetKey(msg, key)
			if err := s.exec(ctx, "INSERT INTO ledger (uuid, key, n) VALUES ($1, $2, $3)", msg.UUID, key, last); err != nil {
				return nil, err
			}
			written[msg.UUID] = entry{key, last}
			messages = append(messages, msg)
		}
		if err := s.exec(ctx, "UPDATE accounts SET n = $2 WHERE key = $1", key, last); err != nil {
			return nil, err
		}
	}
	ctx = j.w.store.WithTx(ctx, s.handle())
	if j.dice.IntN(4) == 0 {
		if err := j.join(ctx, s, messages); err != nil {
			return nil, err
		}
	}
	return written, j.w.pub.WithContext(ctx).Publish(j.w.topic, messages...)
}

func (w *writers) inPgx(ctx context.Context, j *job) error {
	return pgx.BeginFunc(ctx, w.store.Pool(), func(tx pgx.Tx) error { return j.do(ctx, pgxSession{tx}) })
}

func (w *writers) inSQL(ctx context.Context, j *job) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := j.do(ctx, sqlSession{tx}); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

type pgxSession struct{ tx pgx.Tx }

func (s pgxSession) queryInt(ctx context.Context, text string, args ...any) (n int, err error) {
	err = s.tx.QueryRow(ctx, text, args...).Scan(&n)
	return n, err
}

func (s pgxSession) exec(ctx context.Context, text string, args ...any) error {
	_, err := s.tx.Exec(ctx, text, args...)
	return err
}

func (s pgxSession) savepoint(ctx context.Context, fn func(session) error) error {
	nested, err := s.tx.Begin(ctx)
	if err != nil {
		return err
	}
	return errors.Join(fn(pgxSession{nested}), nested.Rollback(ctx))
}

func (s pgxSession) handle() any { return s.tx }

type sqlSession struct{ tx *sql.Tx }

func (s sqlSession) queryInt(ctx context.Context, text string, args ...any) (n int, err error) {
	err = s.tx.QueryRowContext(ctx, text, args...).Scan(&n)
	return n, err
}

func (s sqlSession) exec(ctx context.Context, text string, args ...any) error {
	_, err := s.tx.ExecContext(ctx, text, args...)
	return err
}

func (s sqlSession) savepoint(ctx context.Context, fn func(session) error) error {
	if err := s.exec(ctx, "SAVEPOINT doubt"); err != nil {
		return err
	}
	return errors.Join(fn(s), s.exec(ctx, "ROLLBACK TO SAVEPOINT doubt"))
}

func (s sqlSession) handle() any { return s.tx }

// forgotten are commits that were reported to a writer and are not there.
func (w *writers) forgotten(ledger map[string]entry) []string {
	var all []string
	for uuid, told := range w.told {
		if ledger[uuid] != told {
			all = append(all, fmt.Sprintf("%s %d %s", told.key, told.n, uuid))
		}
	}
	return all
}

// note counts what may go wrong while connections break, and keeps what may
// not.
func (w *writers) note(err error) {
	kind, expected := kindOf(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trouble[kind]++
	if !expected {
		w.strange = append(w.strange, err.Error())
	}
}

func kindOf(err error) (kind string, expected bool) {
	var fromServer *pgconn.PgError
	var fromNetwork net.Error
	var connecting *pgconn.ConnectError
	text := err.Error()
	switch {
	case errors.Is(err, outmill.ErrInvalidRecord), errors.Is(err, outmill.ErrForeignTx), errors.Is(err, outmill.ErrMixedTx), errors.Is(err, outmill.ErrNoTx), errors.Is(err, outmill.ErrSchemaMissing):
		return "refused", false
	case errors.As(err, &fromServer):
		// Shutdown and crash: class 57.
		return fromServer.Code, strings.HasPrefix(fromServer.Code, "57P0")
	case errors.As(err, &connecting):
		return "no connection", true
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout", true
	case errors.As(err, &fromNetwork), errors.Is(err, sql.ErrConnDone), errors.Is(err, sql.ErrTxDone),
		strings.Contains(text, "conn closed"), strings.Contains(text, "EOF"), strings.Contains(text, "bad connection"), strings.Contains(text, "closed"):
		return "connection lost", true
	}
	return fmt.Sprintf("%T", err), false
}
