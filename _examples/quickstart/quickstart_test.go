package main

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/internal/testenv/mysqltest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/internal/testenv/sqlservertest"
	"github.com/outmill/outmill/postgres"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// sarama's metrics keep one goroutine for the life of the program.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
		// A router that could not start keeps one goroutine.
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/message.(*Router).watchAllHandlersStopped.func1"))
}

func TestTheQuickstartLosesNothingAndShowsNothingThatRolledBack(t *testing.T) {
	t.Parallel()
	losesNothing(t, options{})
}

func TestTheQuickstartLosesNothingOnPostgreSQL(t *testing.T) {
	t.Parallel()
	storeURL := postgrestest.Database(t)
	losesNothing(t, options{store: storeURL})
	// The store is kept, so a second run meets what the first has left.
	losesNothing(t, options{store: storeURL})
	nobodyReads(t, storeURL)
	requireCount(t, storeURL, 2*520, `SELECT count(*) FROM quickstart_orders`)
	requireCount(t, storeURL, 0, `SELECT count(*) FROM outmill.records`)
}

func TestTheQuickstartLosesNothingOnMongoDB(t *testing.T) {
	t.Parallel()
	db := mongotest.Database(t)
	storeURL := withDatabase(t, mongotest.Server(t), db.Name())
	losesNothing(t, options{store: storeURL})
	// The store is kept, so a second run meets what the first has left.
	losesNothing(t, options{store: storeURL})
	nobodyReads(t, storeURL)
	for collection, want := range map[string]int64{"quickstart_orders": 2 * 520, "outmill_records": 0} {
		if got, err := db.Collection(collection).CountDocuments(t.Context(), bson.D{}); err != nil || got != want {
			t.Fatalf("%s: got %d, want %d (%v)", collection, got, want, err)
		}
	}
}

func TestTheQuickstartLosesNothingOnMySQL(t *testing.T) {
	t.Parallel()
	storeURL := mysqltest.Database(t)
	losesNothing(t, options{orders: 200, store: storeURL})
	// The store is kept, so a second run meets what the first has left.
	losesNothing(t, options{orders: 200, store: storeURL})
	nobodyReads(t, storeURL)
	requireCounts(t, mysqltest.Pool(t, storeURL), map[string]int{"quickstart_orders": 2 * 180, "outmill_records": 0})
}

func TestTheQuickstartLosesNothingOnSQLServer(t *testing.T) {
	t.Parallel()
	storeURL := sqlservertest.Database(t)
	losesNothing(t, options{orders: 200, store: storeURL})
	// The store is kept, so a second run meets what the first has left.
	losesNothing(t, options{orders: 200, store: storeURL})
	nobodyReads(t, storeURL)
	db, err := sql.Open("sqlserver", storeURL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	requireCounts(t, db, map[string]int{"dbo.quickstart_orders": 2 * 180, "dbo.Outbox": 0})
}

// requireCounts counts the rows of tables.
func requireCounts(t *testing.T, db *sql.DB, tables map[string]int) {
	t.Helper()
	for table, want := range tables {
		var got int
		if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&got); err != nil || got != want {
			t.Fatalf("%s: got %d, want %d (%v)", table, got, want, err)
		}
	}
}

func withDatabase(t *testing.T, serverURL, database string) string {
	t.Helper()
	parsed, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	parsed.Path = "/" + database
	return parsed.String()
}

func TestTheQuickstartLosesNothingOnPostgreSQLAndARealKafka(t *testing.T) {
	t.Parallel()
	losesNothing(t, options{store: postgrestest.Database(t), kafka: strings.Join(kafkatest.Real(t), ",")})
}

func TestTheQuickstartLosesNothingInAFileThatIsKept(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "orders.db")
	losesNothing(t, options{orders: 200, db: file})
	losesNothing(t, options{orders: 200, store: "sqlite:" + file})
	nobodyReads(t, "sqlite:"+file)
}

func losesNothing(t *testing.T, opts options) {
	t.Helper()
	if opts.orders == 0 {
		opts.orders = 600
	}
	sum, err := run(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	// Every seventh cart of 20, from the fourth on, is declined: 4 of 30, 1 of 10.
	declined := 20 * ((opts.orders/20 + 3) / 7)
	committed := opts.orders - declined
	want := summary{committed: committed, rolledBack: declined, handled: committed, forwarded: committed}
	sum.duplicated = 0
	if sum != want {
		t.Fatalf("got %+v, want %+v", sum, want)
	}
}

// nobodyReads checks that no group is left in a kept store. Messages would wait for such a group
// for ever.
func nobodyReads(t *testing.T, storeURL string) {
	t.Helper()
	store, err := outmill.Open(t.Context(), storeURL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	groups, err := store.Groups(t.Context())
	if err != nil || len(groups) > 0 {
		t.Fatalf("groups are left: %+v, %v", groups, err)
	}
}

func requireCount(t *testing.T, storeURL string, want int, query string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), storeURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	var got int
	if err := conn.QueryRow(t.Context(), query).Scan(&got); err != nil || got != want {
		t.Fatalf("%s: got %d, want %d (%v)", query, got, want, err)
	}
}

func TestAnInterruptedQuickstartEndsAndLeavesNoReaders(t *testing.T) {
	t.Parallel()
	storeURL := postgrestest.Database(t)
	store, err := postgres.Open(t.Context(), storeURL, postgres.Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	go func() {
		defer interrupt()
		waitForOrders(ctx, store)
	}()
	if _, err := run(ctx, options{orders: 1_000_000, store: storeURL}); !errors.Is(err, errInterrupted) {
		t.Fatalf("got %v, want %v", err, errInterrupted)
	}
	nobodyReads(t, storeURL)
}

func TestPipesThatCannotStartSaySo(t *testing.T) {
	t.Parallel()
	db, _, cleanUp, err := openDatabase(t.Context(), options{}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	defer cleanUp()
	defer db.Close()
	// There is no schema: Ensure was not called.
	kafka, err := startKafka(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer kafka.close()
	if _, err := startPipes(t.Context(), newNames(), db, kafka, newAudit(1), watermill.NopLogger{}); !errors.Is(err,
		outmill.ErrSchemaMissing) {
		t.Fatalf("got %v, want %v", err, outmill.ErrSchemaMissing)
	}
}

// waitForOrders returns when some orders are committed, or when ctx has ended.
func waitForOrders(ctx context.Context, store *postgres.Store) {
	wake := make(chan struct{}, 1)
	store.Wake(ctx, func(string) {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		var orders int
		// There is no table at first.
		if err := store.Pool().QueryRow(ctx, `SELECT count(*) FROM quickstart_orders`).Scan(&orders); err == nil && orders > 0 {
			return
		}
	}
}

func TestTheQuickstartSaysWhatIsWrongWithAStore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts options
		want string
	}{
		"no such scheme":   {options{store: "cassandra://user:secret@host/x"}, "cassandra"},
		"two stores":       {options{store: "sqlite:a.db", db: "b.db"}, "-db"},
		"nothing listens":  {options{store: "postgres://user:secret@127.0.0.1:1/orders"}, "127.0.0.1"},
		"no MongoDB there": {options{store: "mongodb://user:secret@127.0.0.1:1/orders?serverSelectionTimeoutMS=100"}, "127.0.0.1"},
		"no SQL Server":    {options{store: "sqlserver://user:secret@127.0.0.1:1?database=orders&dial+timeout=1"}, "127.0.0.1"},
		"no such folder":   {options{db: filepath.Join(t.TempDir(), "none", "orders.db")}, "none"},
		"no orders at all": {options{orders: -1}, "-orders"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.opts.orders == 0 {
				c.opts.orders = 1
			}
			_, err := run(t.Context(), c.opts)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
				t.Fatalf("got %v, want an error with %q and no password", err, c.want)
			}
		})
	}
}

func TestTheSummaryHasTheFormThatScriptsRead(t *testing.T) {
	t.Parallel()
	sum := summary{committed: 1, rolledBack: 2, handled: 3, forwarded: 4, lost: 5, duplicated: 6}
	const want = "committed=1 rolled_back=2 handled=3 forwarded=4 lost=5 duplicated=6"
	if got := sum.String(); got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func TestTheAuditNoticesWhatGoesWrong(t *testing.T) {
	t.Parallel()
	everythingRight := func(a *audit) {
		a.committed([]order{{ID: 0}})
		a.rolledBack([]order{{ID: 1}})
		a.handled(order{ID: 0}, nil)
		a.forwarded(order{ID: 0}, nil)
		a.allPlaced()
	}
	cases := map[string]struct {
		happens func(*audit)
		ok      bool
	}{
		"nothing is wrong":                 {everythingRight, true},
		"a duplicate alone is no failure":  {func(a *audit) { everythingRight(a); a.handled(order{ID: 0}, nil) }, true},
		"a committed order is not handled": {func(a *audit) { a.committed([]order{{ID: 0}}); a.forwarded(order{ID: 0}, nil) }, false},
		"a committed order is not in Kafka": {
			func(a *audit) { a.committed([]order{{ID: 0}}); a.handled(order{ID: 0}, nil) }, false},
		"a rolled back order is handled":  {func(a *audit) { everythingRight(a); a.handled(order{ID: 1}, nil) }, false},
		"a rolled back order is in Kafka": {func(a *audit) { everythingRight(a); a.forwarded(order{ID: 1}, nil) }, false},
		"a message is no order":           {func(a *audit) { everythingRight(a); a.forwarded(order{}, errors.New("not JSON")) }, false},
		"an order is not one of this run": {func(a *audit) { everythingRight(a); a.forwarded(order{ID: 99}, nil) }, false},
		"an order number makes no sense":  {func(a *audit) { everythingRight(a); a.handled(order{ID: -1}, nil) }, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAudit(2)
			c.happens(a)
			if got := a.summary().ok(); got != c.ok {
				t.Fatalf("ok is %t, want %t: %+v", got, c.ok, a.summary())
			}
		})
	}
}

func TestTheQuickstartSaysWhereItLookedForABroker(t *testing.T) {
	t.Parallel()
	_, err := run(t.Context(), options{orders: 1, kafka: "127.0.0.1:1"})
	if err == nil {
		t.Fatal("want an error: nothing listens there")
	}
	t.Log(err)
}
