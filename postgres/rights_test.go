package postgres_test

import (
	"context"
	"maps"
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
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// rights of a role, for each object as a GRANT names it.
type rights map[string][]string

func (r rights) and(more rights) rights {
	both := maps.Clone(r)
	for table, allowed := range more {
		both[table] = slices.Concat(both[table], allowed)
	}
	return both
}

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
func rightsOf(store *postgres.Store, role string) rights {
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

// newRole creates a role that may only log in, and returns the database's URL for it. The role
// is dropped at the end of the test.
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

// ruled returns a database whose schema was created by its superuser.
func ruled(t *testing.T) (database string, admin *pgxpool.Pool, store *postgres.Store) {
	t.Helper()
	database = readyDatabase(t, postgres.Config{})
	admin = connect(t, database)
	store = newStore(t, admin, postgres.Config{Retain: time.Hour})
	require.NoError(t, store.Ensure(t.Context()))
	return database, admin, store
}

func TestStore_Rights(t *testing.T) {
	t.Parallel()

	t.Run("roles need no more than the rights that the documentation names (OBX-123)", func(t *testing.T) {
		t.Parallel()
		for name, role := range map[string]ruledRole{
			"publisher":         {[]string{"publisher"}, usedByPublisher},
			"starter of joins":  {[]string{"publisher"}, usedByStarter},
			"worker":            {[]string{"worker"}, usedByWorker},
			"finisher of joins": {[]string{"worker", "publisher"}, usedByFinisher},
			"handler of sagas":  {[]string{"worker"}, usedBySagas},
			"operator":          {[]string{"worker", "reader"}, usedByOperator},
			"reader":            {[]string{"reader"}, usedByReader},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				role.require(t)
			})
		}
	})

	t.Run("a reader of the view for people needs the rights of a reader and nothing else", func(t *testing.T) {
		t.Parallel()
		database, admin, super := ruled(t)
		require.NoError(t, super.RegisterGroup(t.Context(), outmill.Registration{Group: readers, Topics: outmill.Topics{}}))
		require.NoError(t, super.Append(t.Context(), made("orders", "x", 3)...))
		claimed(t, super, claimOf(outmill.NewOwnerToken(), 2, outmill.OrderNone))
		role, roleURL := newRole(t, admin, database)
		rightsOf(super, "reader").grant(t, admin, role)
		db := connect(t, roleURL)
		require.Equal(t, 2, valueOf[int](t, db, "SELECT count(*) FROM outmill.readable WHERE status = 'leased'"))
		require.Equal(t, 3, valueOf[int](t, db, "SELECT count(payload) FROM outmill.readable"))
		_, err := db.Exec(t.Context(), "DELETE FROM outmill.records")
		require.ErrorContains(t, err, "permission denied")
	})

	t.Run("a worker without rights beyond its own is woken", func(t *testing.T) {
		t.Parallel()
		database, admin, super := ruled(t)
		role, roleURL := newRole(t, admin, database)
		rightsOf(super, "worker").grant(t, admin, role)
		store := newStore(t, connect(t, roleURL), postgres.Config{})
		told := testenv.Hints(t.Context(), store)
		// The first notification comes when it begins to listen.
		<-told
		require.NoError(t, super.Append(t.Context(), made("orders", "x", 1)...))
		<-told
	})

	t.Run("ensure needs the right to create", func(t *testing.T) {
		t.Parallel()
		database := postgrestest.Database(t)
		admin := connect(t, database)
		role, roleURL := newRole(t, admin, database)
		store := newStore(t, connect(t, roleURL), postgres.Config{})
		requireNoRight(t, store.Ensure(t.Context()), "CREATE on the database")

		// The schema exists, but has another owner.
		execute(t, admin, "CREATE SCHEMA outmill")
		execute(t, admin, "GRANT USAGE ON SCHEMA outmill TO "+role)
		requireNoRight(t, store.Ensure(t.Context()), "CREATE on the schema")
		execute(t, admin, "GRANT CREATE ON SCHEMA outmill TO "+role)
		require.NoError(t, store.Ensure(t.Context()))
		everything(t, store)

		execute(t, admin, "GRANT CREATE ON DATABASE "+valueOf[string](t, admin, "SELECT quote_ident(current_database())")+" TO "+role)
		own := newStore(t, store.Pool(), postgres.Config{Schema: "its own"})
		require.NoError(t, own.Ensure(t.Context()))
		everything(t, own)
	})
}

// ruledRole has the rights that the schema names for some roles, and makes its calls.
type ruledRole struct {
	roles []string
	use   func(t *testing.T, store, super *postgres.Store) error
}

// require makes the calls with those rights only, also where no function is everybody's. That each right is needed, TestRights of the
// driver holds.
func (r ruledRole) require(t *testing.T) {
	t.Helper()
	database, admin, super := ruled(t)
	execute(t, admin, "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA outmill FROM PUBLIC")
	role, roleURL := newRole(t, admin, database)
	for _, name := range r.roles {
		granted := rightsOf(super, name)
		require.NotEmpty(t, granted)
		granted.grant(t, admin, role)
	}
	use := func() error {
		// The store is new, so that it reads the schema's settings again.
		store, err := postgres.New(connect(t, roleURL), postgres.Config{Retain: time.Hour}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, store.Close()) }()
		return r.use(t, store, super)
	}
	require.NoError(t, use())
	require.NoError(t, use(), "once more")
	execute(t, admin, "REVOKE USAGE ON SCHEMA outmill FROM "+role)
	requireNoRight(t, use(), "USAGE of the schema")
}

// requireNoRight requires an error that names the documentation of the rights.
func requireNoRight(t *testing.T, err error, right string) {
	t.Helper()
	require.ErrorContains(t, err, "permission denied", "without %s", right)
	require.ErrorContains(t, err, "rights", "without %s", right)
	require.NotErrorIs(t, err, outmill.ErrSchemaMissing, "without %s", right)
}

// firstOf runs the calls until one fails.
func firstOf(calls ...func() error) error {
	for _, call := range calls {
		if err := call(); err != nil {
			return err
		}
	}
	return nil
}

func usedByPublisher(t *testing.T, store, _ *postgres.Store) error {
	ctx := t.Context()
	return firstOf(
		func() error { return store.Ensure(ctx) },
		func() error { return store.Append(ctx, made("orders", "x", 3)...) },
		func() error {
			records := made("orders", "x", 3)
			records[0].DedupKey, records[1].DedupKey = "once", "once"
			return store.Append(ctx, records...)
		},
		func() error {
			return store.InTx(ctx, func(ctx context.Context, _ pgx.Tx) error { return store.Append(ctx, made("orders", "x", 3)...) })
		},
	)
}

// usedByWorker makes the calls of a subscriber, a forwarder and their janitor.
func usedByWorker(t *testing.T, store, super *postgres.Store) error {
	ctx := t.Context()
	// There are an expired record, one that was processed long ago, and a key with a held
	// record.
	wipe(t, super.Pool(), "outmill")
	require.NoError(t, super.Append(ctx, slices.Concat(made("orders", "x", 50), made("orders", "y", 50))...))
	steps := []func() error{
		func() error { return store.Ensure(ctx) },
		func() error {
			return store.RegisterGroup(ctx, outmill.Registration{Group: outmill.NewWorkItemID().String()})
		},
		func() error { return store.RegisterGroup(ctx, outmill.Registration{Group: readers}) },
	}
	for _, order := range []outmill.Order{outmill.OrderKey, outmill.OrderNone, outmill.OrderTopic, outmill.OrderKey} {
		for range 2 {
			steps = append(steps, func() error { return work(ctx, store, order) })
		}
	}
	steps = append(steps, func() error { return workOnSteps(t, store, super) }, func() error { return workInTx(t, store, super) })
	for _, tidy := range []func(context.Context, int) (int, error){store.ReapExpired, store.ExpireDue, store.DeleteProcessed,
		store.DeleteDedupKeys, store.DeleteJoins, store.DeleteNotes, store.DeleteOldSagas, store.DeleteOldAudit} {
		steps = append(steps, func() error { _, err := tidy(ctx, 10); return err })
	}
	return firstOf(append(steps,
		func() error {
			return store.RegisterGroup(ctx,
				outmill.Registration{Group: "brief", Worker: "w", TTL: time.Microsecond, Topics: outmill.Topics{Include: []string{"brief"}}})
		},
		func() error { _, _, err := store.ExpireRegistrations(ctx, 10); return err },
	)...)
}

// work claims and settles in every way.
func work(ctx context.Context, store *postgres.Store, order outmill.Order) error {
	found, err := store.Claim(ctx, claimOf(outmill.NewOwnerToken(), 7, order))
	if err != nil || len(found) < 6 {
		return err
	}
	leases := leasesOf(found)
	return firstOf(
		func() error { _, err := store.Extend(ctx, time.Minute, leases); return err },
		func() error {
			return store.Fail(ctx, []outmill.Settlement{{Lease: leases[1]}, {Lease: leases[2], Park: true}})
		},
		func() error {
			return store.Abandon(ctx, []outmill.Settlement{{Lease: leases[3], Delay: time.Hour}})
		},
		func() error { return store.Snooze(ctx, []outmill.Settlement{{Lease: leases[4]}}) },
		func() error { return store.Release(ctx, leases[5:]) },
		func() error { return store.Ack(ctx, "", leases[:1]) },
	)
}

// workOnSteps settles the steps of a join, and gives back the record that waits for it.
func workOnSteps(t *testing.T, store, super *postgres.Store) error {
	t.Helper()
	ctx := t.Context()
	join, steps := startedBy(t, super, 2)
	topic := steps[0].Topic
	require.NoError(t, super.Append(ctx, &outmill.Record{Topic: topic, WaitsFor: join}))
	found, err := store.Claim(ctx, claimOf(outmill.NewOwnerToken(), 3, outmill.OrderTopic, topic))
	if err != nil {
		return err
	}
	require.Len(t, found, 3)
	leases := leasesOf(found)
	return firstOf(
		func() error { return store.Snooze(ctx, []outmill.Settlement{{Lease: leases[2], Delay: time.Hour}}) },
		func() error { return store.Ack(ctx, "", leases[:1]) },
		func() error { return store.Fail(ctx, []outmill.Settlement{{Lease: leases[1]}}) },
	)
}

// workInTx notes a message that is a step in a transaction, and acks it.
func workInTx(t *testing.T, store, super *postgres.Store) error {
	t.Helper()
	ctx := t.Context()
	execute(t, super.Pool(), "UPDATE outmill.entries SET at = 1 WHERE kind = 'note'")
	_, steps := startedBy(t, super, 1)
	found, err := store.Claim(ctx, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone, steps[0].Topic))
	if err != nil {
		return err
	}
	require.Len(t, found, 1)
	leases := leasesOf(found)
	return firstOf(
		func() error {
			return store.Transact(ctx, func(ctx context.Context) error {
				note := roles.Note{Consumer: "c", Key: found[0].ID.String(), Retention: time.Hour, Lease: leases[0]}
				_, err := store.PutNote(ctx, note, time.Second)
				return err
			})
		},
		func() error { return store.Ack(ctx, "", leases) },
	)
}

// startedBy starts a join with steps on a topic of their own.
func startedBy(t *testing.T, store *postgres.Store, n int) (outmill.JoinID, []*outmill.Record) {
	t.Helper()
	join, steps, err := startJoin(t.Context(), store, n)
	require.NoError(t, err)
	return join, steps
}

func startJoin(ctx context.Context, store *postgres.Store, n int) (outmill.JoinID, []*outmill.Record, error) {
	join := &roles.Join{ExpectedSteps: n + 1}
	if err := store.StartJoin(ctx, join); err != nil {
		return join.ID, nil, err
	}
	steps := made(outmill.NewWorkItemID().String(), "step", n)
	for _, step := range steps {
		step.Joins = []outmill.JoinID{join.ID}
	}
	return join.ID, steps, store.Append(ctx, steps...)
}

func usedByStarter(t *testing.T, store, super *postgres.Store) error {
	ctx := t.Context()
	start := func(ctx context.Context) error { _, _, err := startJoin(ctx, store, 3); return err }
	return firstOf(
		func() error { return usedByPublisher(t, store, super) },
		func() error { return start(ctx) },
		func() error {
			return store.InTx(ctx, func(ctx context.Context, _ pgx.Tx) error { return start(ctx) })
		},
	)
}

// usedByFinisher makes the calls of a handler that ends joins, and its other calls on steps.
func usedByFinisher(t *testing.T, store, super *postgres.Store) error {
	ctx := t.Context()
	if err := usedByWorker(t, store, super); err != nil {
		return err
	}
	join, steps := startedBy(t, super, 2)
	late := made("orders", "late", 1)[0]
	require.NoError(t, super.Append(ctx, late))
	outer, _ := startedBy(t, super, 1)
	open := &roles.Join{Unsealed: true}
	require.NoError(t, super.StartJoin(ctx, open))
	finish := func(join outmill.JoinID, next *outmill.Record) error {
		ended, err := store.FinishJoin(ctx, join,
			roles.FinishRequest{Seal: true, Then: func(roles.Join) (*outmill.Record, error) { return next, nil }})
		require.True(t, err != nil || ended.Finished)
		return err
	}
	return firstOf(
		func() error { return store.AttachStep(ctx, join, late.ID) },
		func() error { return store.ReportCompleted(ctx, join, late.ID) },
		func() error { return store.ReportCompleted(ctx, join, steps[0].ID) },
		func() error { return store.ReportFailed(ctx, join, steps[1].ID) },
		func() error { return finish(join, &outmill.Record{Topic: "next", Joins: []outmill.JoinID{outer}}) },
		func() error {
			return finish(open.ID, &outmill.Record{Topic: "next", DedupKey: outmill.NewWorkItemID().String()})
		},
	)
}

func usedByReader(t *testing.T, store, super *postgres.Store) error {
	ctx := t.Context()
	record := made("orders", "x", 1)[0]
	require.NoError(t, super.Append(ctx, record))
	join, _ := startedBy(t, super, 1)
	steps := []func() error{
		func() error { return store.Ensure(ctx) },
		func() error { _, err := store.Stats(ctx, 0); return err },
		func() error { _, err := store.Groups(ctx); return err },
		func() error { _, err := store.Get(ctx, record.ID); return err },
		func() error { _, err := store.GetJoin(ctx, join); return err },
		func() error { _, err := store.ListJoins(ctx, roles.JoinQuery{}); return err },
		func() error { _, err := store.ListSteps(ctx, join, outmill.WorkItemID{}, 0); return err },
		func() error { _, err := store.DeadLetters(ctx, outmill.ListQuery{}); return err },
		func() error { _, err := store.Audited(ctx, roles.AuditQuery{}); return err },
	}
	for _, status := range []outmill.Status{"", outmill.StatusPending, outmill.StatusLeased, outmill.StatusProcessed, outmill.StatusDead} {
		steps = append(steps, func() error { _, err := store.List(ctx, outmill.ListQuery{Status: status}); return err })
	}
	return firstOf(steps...)
}

func usedByOperator(t *testing.T, store, super *postgres.Store) error {
	if err := usedByReader(t, store, super); err != nil {
		return err
	}
	ctx := t.Context()
	record := made("orders", "x", 1)[0]
	require.NoError(t, super.Append(ctx, record))
	holdOne(t, super)
	join, steps := startedBy(t, super, 2)
	open := &roles.Join{Unsealed: true}
	require.NoError(t, super.StartJoin(ctx, open))
	dead := parkedOne(t, super)
	return firstOf(
		func() error {
			_, err := store.Edit(ctx, dead.ID, roles.Edit{Seen: storekit.FingerprintOf(dead), Payload: []byte("new")})
			return err
		},
		func() error { _, err := store.Skip(ctx, dead.ID); return err },
		func() error { _, err := store.Requeue(ctx, record.ID); return err },
		func() error { _, err := store.Delete(ctx, record.ID, steps[0].ID); return err },
		func() error { _, err := store.DropGroup(ctx, readers); return err },
		func() error { return store.Pause(ctx, roles.PauseScope{Topic: "orders"}, "ann", "") },
		func() error { _, err := store.Resume(ctx, roles.PauseScope{Topic: "orders"}); return err },
		func() error { return store.ReportCompleted(ctx, join, steps[1].ID) },
		func() error { return store.SealJoin(ctx, open.ID, 0) },
		func() error { return store.CancelJoin(ctx, join, "enough") },
	)
}

// parkedOne parks a key of two records, and returns the first.
func parkedOne(t *testing.T, super *postgres.Store) *outmill.Record {
	t.Helper()
	require.NoError(t, super.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
	topic := outmill.NewWorkItemID().String()
	for range 2 {
		require.NoError(t, super.Append(t.Context(), &outmill.Record{Topic: topic, Key: "k"}))
	}
	found := claimed(t, super, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, topic))
	require.NoError(t, super.Fail(t.Context(), []outmill.Settlement{{Lease: found[0].Lease(), Park: true}}))
	head, err := super.Get(t.Context(), found[0].ID)
	require.NoError(t, err)
	return head
}

// holdOne leaves a record held behind another one of its key.
func holdOne(t *testing.T, super *postgres.Store) {
	t.Helper()
	require.NoError(t, super.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
	topic := outmill.NewWorkItemID().String()
	for range 2 {
		require.NoError(t, super.Append(t.Context(), &outmill.Record{Topic: topic, Key: "k"}))
	}
	require.Len(t, claimed(t, super, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, topic)), 1)
	require.Empty(t, claimed(t, super, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, topic)))
}

func usedBySagas(t *testing.T, store, _ *postgres.Store) error {
	ctx := t.Context()
	type state struct{ Paid bool }
	saga := &roles.Saga{Type: "order", Correlation: outmill.NewWorkItemID().String()}
	return firstOf(
		func() error { return store.InsertSaga(ctx, saga, &state{}, roles.SagaOptions{}) },
		func() error {
			_, err := store.FindSaga(ctx, saga.Type, saga.Correlation, &state{}, roles.SagaOptions{})
			return err
		},
		func() error {
			saga.Finished = true
			return store.UpdateSaga(ctx, saga, &state{}, roles.SagaOptions{KeepUnknown: true})
		},
		func() error { return store.RetainSaga(ctx, saga, time.Hour, roles.SagaOptions{}) },
		func() error { return store.DeleteSaga(ctx, saga, roles.SagaOptions{}) },
		func() error {
			_, err := store.DeleteFinishedSagas(ctx, saga.Type, time.Hour, 10)
			return err
		},
	)
}
