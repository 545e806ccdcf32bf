package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlite"
)

const storesAbout = `Each store alone, no publisher and no subscriber: appends, and claim + ack of what waits,
	in batches and one by one. One
client, messages with keys, claims without an order. SQLite is a file on the machine's temporary directory, PostgreSQL
runs with fsync on. Commits of appends wait for the disk; of claims and acks they do in SQLite, and do not in PostgreSQL
(postgres.Config.DurableSettle). MongoDB writes with write concern majority, and so does what it is compared with, on plain
collections of the same server; it is left out where there is none. SQL Server is left out too where none is named (-sqlserver,
OUTMILL_TEST_SQLSERVER_URL). What it is compared with is a row at a time of a table with a status and an index of that.

  sqlite_append_1_per_s            appends of one record, n/50 times, each in a transaction of its own
  sqlite_append_1000_per_s         appends of 1,000 records, n in all
  sqlite_claim_ack_per_s           claims of -batch records and an ack of these, n in all
  sqlite_one_by_one_per_s          a claim of one record and its ack, n/50 times, while n wait
  postgres_append_1_per_s          the same
  postgres_append_1000_per_s       "
  postgres_claim_ack_per_s         "
  postgres_one_by_one_per_s        "
  mongo_append_1_per_s             "
  mongo_append_1000_per_s          "
  mongo_claim_ack_per_s            "
  mongo_one_by_one_per_s           "
  mongo_publish_1000_per_s         the publisher, 1,000 messages in a call and a transaction of the store's own, n in all
  mongo_insert_many_per_s          InsertMany of 1,000 documents with the fields of the store's, into a collection with only its _id
  mongo_insert_many_indexed_per_s  the same into a collection with the store's indexes
  mongo_insert_many_tx_per_s       the first of these in a transaction
  mongo_find_and_update_per_s      findOneAndUpdate and deleteOne of one document, n/50 times, while n wait, by an index of status and time
  mysql_append_1_per_s             as of the others; MariaDB, or the MySQL that -mysql names, waits for the disk at each commit
  mysql_append_1000_per_s          "
  mysql_claim_ack_per_s            "
  mysql_claim_ack_by_key_per_s     the same by key
  mysql_one_by_one_per_s           "
  mysql_insert_per_s               a transaction with an INSERT of a record's columns into a table with the store's indexes, n/50 times
  mysql_publish_per_s              a transaction with an Append of a message
  sqlserver_append_1_per_s         as of the others
  sqlserver_append_1000_per_s      "
  sqlserver_claim_ack_per_s        "
  sqlserver_one_by_one_per_s       "
  sqlserver_update_top_1_per_s     UPDATE of the TOP (1) that waits, with READPAST, and its DELETE, n/50 times, while n wait,
by an index of status
  sqlite_batching                  claim_ack / one_by_one
  postgres_batching                "
  mongo_batching                   "
  mysql_batching                   "
  mysql_by_key_ratio               mysql_claim_ack_by_key / mysql_claim_ack
  mysql_publish_cost               mysql_insert / mysql_publish
  sqlserver_batching               "
  sqlserver_claim_ratio            sqlserver_claim_ack / sqlserver_update_top_1
  mongo_claim_ratio                mongo_claim_ack / mongo_find_and_update
  mongo_publish_ratio              mongo_publish_1000 / mongo_insert_many
  mongo_publish_indexed_ratio      mongo_publish_1000 / mongo_insert_many_indexed`

func init() {
	scenarios = append(scenarios, scenario{
		name: "stores", help: "append, and claim + ack, of every store, in batches and one by one",
		about: storesAbout, n: 50_000, short: 2_000, measure: measureStores,
	})
}

// opener returns an empty store, again and again.
type opener func(ctx context.Context) (outmill.Store, error)

// storeKind is one kind of store.
type storeKind struct {
	name, title string
	opener      func(ctx context.Context, b *bench) (opener, error)
	// beside measures the peer of the store; nil if there is none.
	beside func(ctx context.Context, s *storing) error
}

var storeKinds = []storeKind{
	{name: "sqlite", title: "SQLite", opener: sqliteOpener},
	{name: "postgres", title: "PostgreSQL", opener: postgresOpener},
	{name: "mongo", title: "MongoDB", opener: mongoOpener, beside: besideMongo},
	{name: "mysql", title: "MariaDB", opener: mysqlOpener, beside: besideMySQL},
	{name: "sqlserver", title: "SQL Server", opener: sqlserverOpener, beside: besideSQLServer},
}

func sqliteOpener(_ context.Context, b *bench) (opener, error) {
	dir, err := os.MkdirTemp("", "outmill-bench-sqlite-")
	if err != nil {
		return nil, err
	}
	b.engines.ends = append(b.engines.ends, func() { _ = os.RemoveAll(dir) })
	number := 0
	return func(ctx context.Context) (outmill.Store, error) {
		number++
		store, err := sqlite.Open(ctx, filepath.Join(dir, fmt.Sprintf("outbox-%d.db", number)), sqlite.Config{}, nil)
		if err != nil {
			return nil, err
		}
		return store, store.Ensure(ctx)
	}, nil
}

func postgresOpener(ctx context.Context, b *bench) (opener, error) {
	pool, err := b.database(ctx, "stores")
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (outmill.Store, error) { return outbox(ctx, pool) }, nil
}

func measureStores(ctx context.Context, b *bench) error {
	found := false
	for _, kind := range storeKinds {
		if b.only != "" && b.only != kind.name {
			continue
		}
		found = true
		if err := kind.measure(ctx, b); errors.Is(err, errNoMongo) || errors.Is(err, errNoMySQL) || errors.Is(err, errNoSQLServer) {
			b.say("skipped: %s: %v", kind.title, err)
			b.results.fact(kind.name, "skipped: "+err.Error())
		} else if err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("there is no store %q", b.only)
	}
	return nil
}

func (kind storeKind) measure(ctx context.Context, b *bench) (err error) {
	open, err := kind.opener(ctx, b)
	if err != nil {
		return err
	}
	s := &storing{b: b, open: open, owner: outmill.NewOwnerToken()}
	defer func() { err = errors.Join(err, s.close()) }()
	field := func(what string) string { return kind.name + "_" + what + "_per_s" }
	calls, few := max(1, b.n/appendAtOnce), max(1, b.n/50)
	err = b.compare(ctx,
		side{field: field("append_1"), title: kind.title + ", append 1", n: few, prepare: s.prepare(0), run: s.append(few, 1)},
		side{field: field("append_1000"), title: kind.title + ", append 1,000", n: calls * appendAtOnce, prepare: s.prepare(0),
			run: s.append(calls, appendAtOnce)},
		side{field: field("claim_ack"), title: fmt.Sprintf("%s, claim and ack %d", kind.title, b.batch), prepare: s.prepare(b.n),
			run: s.settle(b.n, b.batch)},
		side{field: field("one_by_one"), title: kind.title + ", claim and ack 1", n: few, prepare: s.prepare(b.n), run: s.settle(few, 1)},
	)
	if err != nil {
		return err
	}
	b.results.ratio(kind.name+"_batching", kind.title+", batches / one by one", field("claim_ack"), field("one_by_one"))
	if kind.beside == nil {
		return nil
	}
	return kind.beside(ctx, s)
}

// storing is one store.
type storing struct {
	b     *bench
	open  opener
	owner outmill.OwnerToken
	store outmill.Store
}

const storesTopic = "orders"

func (s *storing) close() error {
	if s.store == nil {
		return nil
	}
	err := s.store.Close()
	s.store = nil
	return err
}

// prepare makes an empty store, and appends this number of records.
func (s *storing) prepare(waiting int) func(ctx context.Context) error {
	return func(ctx context.Context) (err error) {
		if err := s.close(); err != nil {
			return err
		}
		if s.store, err = s.open(ctx); err != nil {
			return err
		}
		return s.b.fill(ctx, s.store, "", storesTopic, waiting, true)
	}
}

// append makes the records before the clock starts.
func (s *storing) append(calls, size int) func(ctx context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		list := records(storesTopic, 0, size, s.b.size, true)
		began := time.Now()
		for range calls {
			for _, r := range list {
				r.ID = outmill.WorkItemID{}
			}
			if err := s.store.Append(ctx, list...); err != nil {
				return 0, err
			}
		}
		return time.Since(began), nil
	}
}

func (s *storing) settle(n, batch int) func(ctx context.Context) (time.Duration, error) {
	return s.settleIn(outmill.OrderNone, n, batch)
}

func (s *storing) settleIn(order outmill.Order, n, batch int) func(ctx context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		began := time.Now()
		for left := n; left > 0; {
			claimed, err := s.store.Claim(ctx, outmill.ClaimRequest{
				Owner: s.owner, Topics: outmill.Topics{Include: []string{storesTopic}}, Limit: min(batch, left), Lease: time.Minute,
				Order: order,
			})
			if err != nil {
				return 0, err
			}
			if len(claimed) == 0 {
				return 0, fmt.Errorf("nothing to claim, and %d are left", left)
			}
			leases := make([]outmill.Lease, len(claimed))
			for i, r := range claimed {
				leases[i] = r.Lease()
			}
			if err := s.store.Ack(ctx, "", leases); err != nil {
				return 0, err
			}
			left -= len(claimed)
		}
		return time.Since(began), nil
	}
}
