package driver_test

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
	"github.com/outmill/outmill/postgres/internal/driver/internal/segments"
)

func execute(t *testing.T, db *pgxpool.Pool, statement string, args ...any) {
	t.Helper()
	_, err := db.Exec(t.Context(), statement, args...)
	require.NoError(t, err, statement)
}

func valueOf[T any](t *testing.T, db *pgxpool.Pool, statement string, args ...any) (value T) {
	t.Helper()
	require.NoError(t, db.QueryRow(t.Context(), statement, args...).Scan(&value), statement)
	return value
}

// storeOn is a store in the schema outmill on a pool that the caller closes.
func storeOn(t *testing.T, db *pgxpool.Pool) opened {
	t.Helper()
	d := driver.New(driver.PoolOf(db), driver.Config{Name: "postgres", Schema: "outmill", Upkeep: busy})
	o := opened{engine.New(d, engine.Config{Retain: time.Hour}), d, db, "outmill"}
	t.Cleanup(func() { require.NoError(t, o.Close()) })
	return o
}

// busy is an upkeep that does at once what it can do.
var busy = segments.Config{Full: 1, Small: 1, Age: 1, MoveAfter: 1, Every: 1, Tidy: 1, DumpWithin: time.Microsecond}

// ready is a database whose schema its superuser has made.
func ready(t *testing.T) (database string, store opened) {
	t.Helper()
	database = postgrestest.Database(t)
	store = storeOn(t, connect(t, database, 8, nil))
	require.NoError(t, store.Ensure(t.Context()))
	return database, store
}

// newRole creates a role that may only log in, and returns the database's URL for it. The role is dropped at the end of the test.
func newRole(t *testing.T, admin *pgxpool.Pool, database string) (role, roleURL string) {
	t.Helper()
	role = "outmill_" + strings.ReplaceAll(outmill.NewWorkItemID().String(), "-", "")
	execute(t, admin, "CREATE ROLE "+role+" LOGIN PASSWORD 'secret'")
	t.Cleanup(func() {
		_, err := admin.Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY "+role+"; DROP ROLE "+role, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
	})
	u, err := url.Parse(database)
	require.NoError(t, err)
	u.User = url.UserPassword(role, "secret")
	return role, u.String()
}

// rights of a role, for each table.
type rights map[string][]string

func (r rights) grant(t *testing.T, admin *pgxpool.Pool, role string) {
	t.Helper()
	execute(t, admin, "GRANT USAGE ON SCHEMA outmill TO "+role)
	for table, allowed := range r {
		execute(t, admin, "GRANT "+strings.Join(allowed, ", ")+" ON "+table+" TO "+role)
	}
}

var (
	grantLine = regexp.MustCompile(`(?m)^-- GRANT (.+) ON (FUNCTION |SEQUENCE |SCHEMA |)(.+) TO (.+)$`)
	privilege = regexp.MustCompile(`[A-Z]+(?: \([^)]*\))?`)
)

// rightsOf are those that the statements of the schema name for a role, apart from USAGE of the schema.
func rightsOf(store opened, role string) rights {
	found := rights{}
	for _, line := range grantLine.FindAllStringSubmatch(strings.Join(store.Statements(), "\n"), -1) {
		if !slices.Contains(strings.Split(line[4], ", "), role) || line[2] == "SCHEMA " {
			continue
		}
		for _, object := range strings.Split(line[3], ", ") {
			found[line[2]+object] = append(found[line[2]+object], privilege.FindAllString(line[1], -1)...)
		}
	}
	return found
}

func made(topic, key string, n int) []*outmill.Record {
	records := make([]*outmill.Record, n)
	for i := range records {
		records[i] = &outmill.Record{Topic: topic, Key: key, Payload: []byte(fmt.Sprint(i))}
	}
	return records
}

func firstOf(calls ...func() error) error {
	for _, call := range calls {
		if err := call(); err != nil {
			return err
		}
	}
	return nil
}

// requireNoRight requires an error that names the object, and the documentation of the rights.
func requireNoRight(t *testing.T, err error, right, object string) {
	t.Helper()
	words := strings.FieldsFunc(object, func(r rune) bool { return strings.ContainsRune(` ."`, r) })
	require.ErrorContains(t, err, "permission denied", "without %s on %s", right, object)
	require.ErrorContains(t, err, " "+words[len(words)-1]+" ", "without %s on %s", right, object)
	require.ErrorContains(t, err, "rights", "without %s on %s", right, object)
	require.NotErrorIs(t, err, outmill.ErrSchemaMissing, "without %s on %s", right, object)
}

// A role needs no more than the rights that the statements of the schema name, and each of them, also where no function is everybody's.
func TestRights(t *testing.T) {
	t.Parallel()
	for _, with := range []struct {
		name string
		// role is the one whose rights are taken away, and besides one that it has, too.
		role, besides string
		used          func(t *testing.T, store, super opened) error
	}{
		{"publisher", "publisher", "", usedByLogPublisher},
		{"publisher of own ids", "namer", "publisher", usedByNamer},
		{"worker", "worker", "", usedByLogWorker},
		{"keeper", "keeper", "worker", usedByKeeper},
		{"reader", "reader", "", usedByReader},
		{"foreign program", "foreign_program", "", usedByForeign},
	} {
		t.Run(with.name, func(t *testing.T) {
			t.Parallel()
			database, super := ready(t)
			execute(t, super.db, "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA outmill FROM PUBLIC")
			user, userURL := newRole(t, super.db, database)
			own, besides := rightsOf(super, with.role), rightsOf(super, with.besides)
			require.NotEmpty(t, own)
			besides.grant(t, super.db, user)
			own.grant(t, super.db, user)
			use := func(t *testing.T) error {
				db := connect(t, userURL, 2, nil)
				defer db.Close()
				d := driver.New(driver.PoolOf(db), driver.Config{Name: "postgres", Schema: "outmill", Upkeep: busy})
				store := opened{engine.New(d, engine.Config{Retain: time.Hour}), d, db, "outmill"}
				defer func() { require.NoError(t, store.Close()) }()
				return with.used(t, store, super)
			}
			require.NoError(t, use(t))
			require.NoError(t, use(t), "once more")
			// without requires that the role needs each of its rights.
			without := func(t *testing.T, objects rights) {
				for object, allowed := range objects {
					for _, right := range allowed {
						execute(t, super.db, "REVOKE "+right+" ON "+object+" FROM "+user)
						requireNoRight(t, use(t), right, object)
						execute(t, super.db, "GRANT "+right+" ON "+object+" TO "+user)
					}
				}
			}
			functions := rights{}
			for object, allowed := range own {
				if strings.HasPrefix(object, "FUNCTION ") {
					functions[object] = allowed
					delete(own, object)
				}
				// Without these there is no error: a store never rests, and an empty look takes a transaction.
				delete(functions, `FUNCTION "outmill"."resting"`)
				delete(functions, `FUNCTION "outmill"."quiet"`)
			}
			without(t, own)
			t.Run("functions", func(t *testing.T) {
				if len(functions) > 3 {
					testenv.Long(t, "the right to each function of the log")
				}
				without(t, functions)
			})
			execute(t, super.db, "REVOKE USAGE ON SCHEMA outmill FROM "+user)
			requireNoRight(t, use(t), "USAGE", "SCHEMA outmill")
		})
	}
}

func usedByPublisher(t *testing.T, store, _ opened) error {
	ctx := t.Context()
	once := func() error {
		records := made("orders", "x", 3)
		records[0].DedupKey, records[1].DedupKey = "once", "once"
		return store.Append(ctx, records...)
	}
	return firstOf(
		func() error { return store.Ensure(ctx) },
		func() error { return store.Append(ctx, made("orders", "x", 3)...) },
		once, once,
		func() error { return store.Append(ctx, &outmill.Record{Topic: "orders", Delay: time.Hour}) },
		func() error {
			return store.Transact(ctx, func(ctx context.Context) error { return store.Append(ctx, made("orders", "x", 3)...) })
		},
	)
}

// usedByWorker makes the calls of a subscriber, a forwarder and their janitor.
func usedByWorker(t *testing.T, store, super opened) error {
	ctx := t.Context()
	steps := []func() error{
		func() error { return store.Ensure(ctx) },
		func() error {
			group := outmill.NewWorkItemID().String()
			return store.RegisterGroup(ctx, outmill.Registration{Group: group, Topics: outmill.Topics{Include: []string{"none"}}})
		},
		func() error {
			return store.RegisterGroup(ctx, outmill.Registration{Group: "readers", Topics: outmill.Topics{Include: []string{"orders"}}})
		},
		func() error { return super.Append(ctx, append(made("orders", "x", 50), made("orders", "y", 50)...)...) },
	}
	for _, order := range []outmill.Order{outmill.OrderKey, outmill.OrderNone, outmill.OrderTopic, outmill.OrderKey} {
		for range 2 {
			steps = append(steps, func() error { return work(ctx, store, order) })
		}
	}
	for _, tidy := range []func(context.Context, int) (int, error){store.ReapExpired, store.ExpireDue, store.DeleteProcessed,
		store.DeleteDedupKeys, store.DeleteJoins, store.DeleteNotes, store.DeleteOldSagas, store.DeleteOldAudit} {
		steps = append(steps, func() error { _, err := tidy(ctx, 10); return err })
	}
	return firstOf(append(steps,
		func() error { _, err := store.DropGroup(ctx, "readers"); return err },
		func() error { _, err := super.DropGroup(ctx, "readers"); return err })...)
}

// work claims, notes that one is handled, acks it, and gives another back.
func work(ctx context.Context, store opened, order outmill.Order) error {
	owner := outmill.NewOwnerToken()
	got, err := store.Claim(ctx, outmill.ClaimRequest{Owner: owner, Worker: "w", Group: "readers", Limit: 4, Lease: time.Minute, Order: order})
	if err != nil || len(got) == 0 {
		return err
	}
	last := len(got) - 1
	return firstOf(
		func() error { return handledOnce(ctx, store, got[0].Lease()) },
		func() error { return store.Ack(ctx, "w", []outmill.Lease{got[0].Lease()}) },
		func() error { return store.Release(ctx, []outmill.Lease{got[last].Lease()}) },
	)
}

func usedByReader(t *testing.T, store, super opened) error {
	ctx := t.Context()
	records := made("orders", "x", 10)
	for _, pattern := range []string{"orders", "o*"} {
		topics := outmill.Topics{Include: []string{pattern}}
		require.NoError(t, super.RegisterGroup(ctx, outmill.Registration{Group: "readers of " + pattern, Topics: topics}))
	}
	require.NoError(t, super.Append(ctx, records...))
	_, err := super.Claim(ctx, outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Group: "readers of o*", Limit: 2, Lease: time.Hour})
	require.NoError(t, err)
	return firstOf(
		func() error { _, err := store.Stats(ctx, 10); return err },
		func() error { _, err := store.Groups(ctx); return err },
		func() error {
			_, err := store.db.Exec(ctx, "SELECT * FROM outmill.readable")
			return explained(store, err)
		},
		func() error { _, err := store.Get(ctx, records[9].ID); return err },
		func() error { _, err := store.List(ctx, outmill.ListQuery{}); return err },
		func() error { _, err := store.Paused(ctx); return err },
	)
}

// usedByForeign appends without a store.
func usedByForeign(t *testing.T, store, _ opened) error {
	_, err := send(t, store.db, "outmill", &outmill.Record{Topic: "orders"}, &outmill.Record{Topic: "orders", DedupKey: "a", Delay: time.Hour})
	if _, reads := store.db.Exec(t.Context(), "SELECT 1 FROM outmill.records"); err == nil {
		require.ErrorContains(t, reads, "permission denied")
	}
	return explained(store, err)
}

// explained is the error of a statement of a test as that of a call.
func explained(store opened, err error) error {
	if err == nil {
		return nil
	}
	return store.driver.Explain(context.Background(), "test", err)
}
