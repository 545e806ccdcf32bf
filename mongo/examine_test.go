package mongo_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

func lenient() roles.ExamineRequest {
	return roles.ExamineRequest{OpenTransaction: time.Hour, LockWait: time.Hour, ClockDifference: time.Hour}
}

func examinedBy(t *testing.T, store *mongo.Store, request roles.ExamineRequest) roles.Examination {
	t.Helper()
	found, err := store.Examine(t.Context(), request)
	require.NoError(t, err)
	for _, f := range found.Findings {
		require.NotEmpty(t, f.Text)
		require.NotEmpty(t, f.Remedy)
	}
	return found
}

// onlyFinding returns the finding of a database that has one fault.
func onlyFinding(t *testing.T, store *mongo.Store, request roles.ExamineRequest) roles.Finding {
	t.Helper()
	found := examinedBy(t, store, request).Findings
	require.Len(t, found, 1, "%+v", found)
	return found[0]
}

func codesOf(found roles.Examination) (codes []string) {
	for _, f := range found.Findings {
		codes = append(codes, f.Code)
	}
	return codes
}

// fsyncLocked locks a server of the test's own until unlock is called, or the test ends.
func fsyncLocked(t *testing.T, s stand) (unlock func()) {
	t.Helper()
	admin := s.db.Client().Database("admin")
	require.NoError(t, admin.RunCommand(t.Context(), bson.D{{Key: "fsync", Value: 1}, {Key: "lock", Value: true}}).Err())
	unlock = sync.OnceFunc(func() {
		assert.NoError(t, admin.RunCommand(context.WithoutCancel(t.Context()), bson.D{{Key: "fsyncUnlock", Value: 1}}).Err())
	})
	t.Cleanup(unlock)
	return unlock
}

func TestStore_Examine(t *testing.T) {
	t.Parallel()

	t.Run("a store that works has no findings", func(t *testing.T) {
		t.Parallel()
		// Other tests keep transactions open on the shared server.
		s, _ := ownStand(t, mongo.Config{})
		require.Equal(t, roles.Examination{}, examinedBy(t, s.Store, lenient()))
		named := newStandIn(t, s.Client().Database("named"), mongo.Config{CollectionName: func(name string) string { return "my-" + name }})
		require.Equal(t, roles.Examination{}, examinedBy(t, named.Store, lenient()))
	})

	t.Run("a missing schema and an old one are the error of the call", func(t *testing.T) {
		t.Parallel()
		db := mongotest.Database(t)
		store := newStore(t, db.Client(), mongo.Config{Database: db.Name()})
		_, err := store.Examine(t.Context(), lenient())
		require.ErrorIs(t, err, outmill.ErrSchemaMissing)
		s := newStand(t, mongo.Config{})
		_, err = s.db.Collection("outmill_meta").UpdateOne(t.Context(), bson.D{},
			bson.D{{Key: "$set", Value: bson.D{{Key: "compatible", Value: 99}}}})
		require.NoError(t, err)
		_, err = s.Examine(t.Context(), lenient())
		require.ErrorIs(t, err, outmill.ErrSchemaNewer)
	})

	t.Run("an index that was dropped is named, and one that was changed", func(t *testing.T) {
		t.Parallel()
		s, _ := ownStand(t, mongo.Config{})
		require.NoError(t, s.records().Indexes().DropOne(t.Context(), "line"))
		f := onlyFinding(t, s.Store, lenient())
		require.Equal(t, []any{"index_missing", "outmill_records.line", false}, []any{f.Code, f.Subject, f.Failure})
		_, err := s.records().Indexes().CreateOne(t.Context(),
			driver.IndexModel{Keys: bson.D{{Key: "grp", Value: 1}}, Options: options.Index().SetName("line")})
		require.NoError(t, err)
		f = onlyFinding(t, s.Store, lenient())
		require.Equal(t, []string{"index_changed", "outmill_records.line"}, []string{f.Code, f.Subject})
		require.NoError(t, s.records().Indexes().DropOne(t.Context(), "line"))
		require.NoError(t, s.Ensure(t.Context()))
		require.Empty(t, examinedBy(t, s.Store, lenient()).Findings)
	})

	t.Run("a transaction that stays open is named", func(t *testing.T) {
		t.Parallel()
		s, server := ownStand(t, mongo.Config{})
		client := clientOf(t, options.Client().ApplyURI(server.URL).SetAppName("report"))
		session, err := client.StartSession()
		require.NoError(t, err)
		ctx := driver.NewSessionContext(context.WithoutCancel(t.Context()), session)
		defer session.EndSession(ctx)
		require.NoError(t, session.StartTransaction())
		_, err = client.Database(s.db.Name()).Collection("outmill_records").CountDocuments(ctx, bson.D{})
		require.NoError(t, err)
		request := lenient()
		require.Empty(t, examinedBy(t, s.Store, request).Findings, "a young one is fine")
		request.OpenTransaction = time.Microsecond
		f := onlyFinding(t, s.Store, request)
		require.Equal(t, "old_transaction", f.Code)
		require.Contains(t, f.Subject, "report")
		require.False(t, f.Since.IsZero())
		require.Contains(t, f.Remedy, "killSessions")
		require.NoError(t, session.AbortTransaction(ctx))
		require.Empty(t, examinedBy(t, s.Store, request).Findings)
	})

	t.Run("a server that fsyncLock has locked is named, and so is an operation that waits for it", func(t *testing.T) {
		t.Parallel()
		s, _ := ownStand(t, mongo.Config{})
		unlock := fsyncLocked(t, s)
		found := examinedBy(t, s.Store, lenient())
		require.Equal(t, []string{"server_locked"}, codesOf(found))
		require.Contains(t, found.Findings[0].Remedy, "fsyncUnlock")
		require.Len(t, found.Unchecked, 1, "the clock")
		ended := make(chan error, 1)
		go func() { ended <- s.Append(context.WithoutCancel(t.Context()), made("orders", "x", 1)...) }()
		request := lenient()
		request.LockWait = time.Millisecond
		// The server may end the operation and the driver repeat it while the store is examined.
		named := func() bool { return slices.Contains(codesOf(examinedBy(t, s.Store, request)), "lock_wait") }
		require.True(t, eventually(t.Context(), patience, named))
		unlock()
		require.NoError(t, <-ended)
		require.Empty(t, examinedBy(t, s.Store, lenient()).Findings)
	})

	t.Run("doctor says within its bound that the server is locked", func(t *testing.T) {
		t.Parallel()
		s, _ := ownStand(t, mongo.Config{})
		defer fsyncLocked(t, s)()
		began := time.Now()
		report, err := monitor.Doctor(t.Context(), s, monitor.DoctorConfig{Timeout: 10 * time.Second})
		require.NoError(t, err)
		require.Less(t, time.Since(began), 30*time.Second)
		require.Len(t, report.Problems, 1)
		require.Equal(t, "server_locked", report.Problems[0].Kind)
		require.Equal(t, monitor.Failure, report.Problems[0].Severity)
	})

	t.Run("a call on a locked server ends soon after its context, with its error", func(t *testing.T) {
		t.Parallel()
		s, _ := ownStand(t, mongo.Config{})
		require.NoError(t, s.Append(t.Context(), made("orders", "x", 3)...))
		leases := leasesOf(claimed(t, s, claimOf(outmill.NewOwnerToken(), 2, outmill.OrderNone)))
		unlock := fsyncLocked(t, s)
		calls := map[string]func(ctx context.Context) error{
			"append": func(ctx context.Context) error { return s.Append(ctx, one("late")) },
			"ack":    func(ctx context.Context) error { return s.Ack(ctx, "", leases[:1]) },
			"fail":   func(ctx context.Context) error { return s.Fail(ctx, []outmill.Settlement{{Lease: leases[1]}}) },
			"list": func(ctx context.Context) error {
				_, err := s.List(ctx, outmill.ListQuery{Limit: 1})
				return err
			},
			"transact": func(ctx context.Context) error {
				return s.Transact(ctx, func(ctx context.Context) error { return s.Append(ctx, one("late")) })
			},
		}
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
			calls[fmt.Sprint("claim ", order)] = func(ctx context.Context) error {
				_, err := s.Claim(ctx, claimOf(outmill.NewOwnerToken(), 1, order))
				return err
			}
		}
		var work sync.WaitGroup
		for name, call := range calls {
			work.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				err := call(ctx)
				assert.ErrorIs(t, err, context.DeadlineExceeded, name)
				assert.NotErrorIs(t, err, storekit.ErrStoreAway, name)
				assert.Less(t, time.Since(began), 15*time.Second, name)
			})
		}
		work.Wait()
		unlock()
		found := claimed(t, s, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone))
		require.NotEmpty(t, found, "what waits is there again")
	})

	t.Run("each right that is missing is named", func(t *testing.T) {
		t.Parallel()
		g := guard(t)
		require.NoError(t, newStore(t, g.root, mongo.Config{Database: "test"}).Ensure(t.Context()))
		admin := g.root.Database("admin")
		all := bson.A{privilege("outmill_records", []string{"changeStream"})}
		for _, name := range mongo.CollectionNames() {
			all = append(all, privilege(name, append([]string{"listIndexes"}, running...)))
		}
		run := func(command bson.D) { t.Helper(); require.NoError(t, admin.RunCommand(t.Context(), command).Err()) }
		run(bson.D{{Key: "createRole", Value: "app"}, {Key: "privileges", Value: all}, {Key: "roles", Value: bson.A{}}})
		run(bson.D{{Key: "createUser", Value: "app"}, {Key: "pwd", Value: "secret"}, {Key: "roles", Value: bson.A{"app"}}})
		store := newStore(t, clientOf(t, g.as(t, "app")), mongo.Config{Database: "test"})
		found := examinedBy(t, store, lenient())
		require.Empty(t, found.Findings)
		require.Len(t, found.Unchecked, 1)
		require.Contains(t, found.Unchecked[0], "inprog")
		for _, tc := range []struct {
			collection string
			actions    []string
			failure    bool
		}{
			{"outmill_records", []string{"find", "remove"}, true},
			{"outmill_meta", []string{"find"}, true},
			{"outmill_records", []string{"changeStream"}, false},
		} {
			revoked := bson.A{privilege(tc.collection, tc.actions)}
			run(bson.D{{Key: "revokePrivilegesFromRole", Value: "app"}, {Key: "privileges", Value: revoked}})
			f := onlyFinding(t, store, lenient())
			require.Equal(t, []any{"right_missing", strings.Join(tc.actions, ", ") + " on test." + tc.collection, tc.failure},
				[]any{f.Code, f.Subject, f.Failure})
			run(bson.D{{Key: "grantPrivilegesToRole", Value: "app"}, {Key: "privileges", Value: revoked}})
			require.Empty(t, examinedBy(t, store, lenient()).Findings)
		}
		without := newStore(t, clientOf(t, g.as(t, "app")), mongo.Config{Database: "test", WithoutChangeStream: true})
		run(bson.D{{Key: "revokePrivilegesFromRole", Value: "app"},
			{Key: "privileges", Value: bson.A{privilege("outmill_records", []string{"changeStream", "listIndexes"})}}})
		found = examinedBy(t, without, lenient())
		require.Empty(t, found.Findings)
		require.Len(t, found.Unchecked, 2)
		require.Contains(t, found.Unchecked[0], "listIndexes")
		super := newStore(t, g.root, mongo.Config{Database: "test"})
		require.Equal(t, roles.Examination{}, examinedBy(t, super, lenient()))
	})

	t.Run("the clocks are compared", func(t *testing.T) {
		t.Parallel()
		request := lenient()
		request.ClockDifference = -time.Minute
		s, _ := ownStand(t, mongo.Config{})
		require.Equal(t, "clock_differs", onlyFinding(t, s.Store, request).Code)
	})

	t.Run("a closed store says so", func(t *testing.T) {
		t.Parallel()
		db := mongotest.Database(t)
		store, err := mongo.New(db.Client(), mongo.Config{Database: db.Name()}, nil)
		require.NoError(t, err)
		require.NoError(t, store.Close())
		_, err = store.Examine(t.Context(), lenient())
		require.ErrorIs(t, err, outmill.ErrClosed)
	})
}
