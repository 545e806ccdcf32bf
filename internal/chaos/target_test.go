//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// target is a kind of store, with the properties of its engine that the test needs.
type target struct {
	name string
	// duration is the default duration of the faults; the environment may set another.
	duration time.Duration
	// pause is the longest pause of a writer between two transactions, and away is how long Kafka
	// is unavailable. The engine must be able to deliver the backlog of that time soon.
	pause, away time.Duration
	// deck has the faults; nil is the deck of an engine with a server.
	deck []deed
	// poll is the readers' poll interval.
	poll time.Duration
	// serve starts a server for the test.
	serve func(t *testing.T) server
	// connect opens a store, and the application's tables for the writers and the judge.
	connect func(ctx context.Context, url string, logger watermill.LoggerAdapter) (database, error)
}

// targets run in this order, one after the other.
var targets = []target{
	{name: "postgres", duration: fullDuration, pause: 400 * time.Millisecond, away: 30 * time.Second, poll: 100 * time.Millisecond,
		serve: servePostgres, connect: connectPostgres},
	{name: "mongo", duration: fullDuration / 2, pause: 400 * time.Millisecond, away: 30 * time.Second, poll: 100 * time.Millisecond,
		serve: serveMongo, connect: connectMongo},
	// A process that is stopped within a transaction keeps all others from writing.
	{name: "sqlite", duration: fullDuration / 2, pause: 400 * time.Millisecond, away: 30 * time.Second, poll: 100 * time.Millisecond,
		deck: withoutServer, serve: serveSQLite, connect: connectSQLite},
	{name: "mysql", duration: fullDuration / 2, pause: 400 * time.Millisecond, away: 30 * time.Second, poll: 100 * time.Millisecond,
		serve: serveMySQL, connect: connectMySQL},
	{name: "sqlserver", duration: 25 * time.Second, pause: 600 * time.Millisecond, away: 15 * time.Second, poll: 300 * time.Millisecond,
		serve: serveSQLServer, connect: connectSQLServer},
}

// ownTarget is that of the process, which plays a role.
func ownTarget() target {
	return targets[slices.IndexFunc(targets, func(t target) bool { return t.name == os.Getenv(envTarget) })]
}

// server is an engine that can be ended and started again, at the same address.
type server interface {
	// address is its host:port.
	address() string
	// url is that of the database by way of an address: the server's, or that of a
	// proxy to it.
	url(address string) string
	// restart ends it in order and starts it again.
	restart(ctx context.Context) error
	// crash kills it, as kill -9 does, and starts it again.
	crash(ctx context.Context) error
}

// outbox is a store that has joins.
type outbox interface {
	outmill.Store
	roles.Joins
}

// database has an outbox and the application's own tables: the
// accounts, one for each key, whose number is that of the key's last message,
// and the ledgers of messages and of joins.
type database interface {
	outbox() outbox
	// prepare makes the application's tables.
	prepare(ctx context.Context) error
	// transact runs fn in a transaction, of any of the ways that the store takes.
	// It may call fn again. It commits if fn returns nil.
	transact(ctx context.Context, dice *rand.Rand, fn func(ctx context.Context, s session) error) error
	// ledger and promised are what transactions have written that committed.
	ledger(ctx context.Context) (map[string]entry, error)
	promised(ctx context.Context) (map[outmill.JoinID]promise, error)
	// kindOf names an error that a writer may get while connections break; false if
	// it may not.
	kindOf(err error) (kind string, expected bool)
	close() error
}

// session is the transaction of a writer.
type session interface {
	// carry returns a context with which publishing is part of the transaction.
	carry(ctx context.Context) context.Context
	// advance adds to the number of a key and returns what it was. Until the end of
	// the transaction no other one does so.
	advance(ctx context.Context, key string, by int) (int, error)
	// record and recordJoin write to the ledgers.
	record(ctx context.Context, uuid string, e entry) error
	recordJoin(ctx context.Context, id outmill.JoinID, p promise) error
}

// doubter is a session that can take back a part of itself.
type doubter interface {
	// doubt runs fn in a part of the transaction and takes that back.
	doubt(ctx context.Context, fn func(s session) error) error
}

// kindOf is for what no engine may do, and what none can help.
func kindOf(db database, err error) (kind string, expected bool) {
	for _, refusal := range []error{outmill.ErrInvalidRecord, outmill.ErrForeignTx, outmill.ErrMixedTx, outmill.ErrNoTx,
		outmill.ErrSchemaMissing} {
		if errors.Is(err, refusal) {
			return "refused", false
		}
	}
	if errors.Is(err, storekit.ErrCommitInDoubt) {
		// The journal shows what became of it.
		return "nobody knows", true
	}
	return db.kindOf(err)
}
