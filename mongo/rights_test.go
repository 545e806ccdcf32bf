package mongo_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// guarded is a server on which users log in.
type guarded struct {
	url  string
	root *driver.Client
}

// guard starts a server, and makes its first user while there is none.
func guard(t *testing.T) guarded {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(key, []byte("aSecretThatMembersShare0"), 0o600))
	g := guarded{url: mongotest.Own(t, "--keyFile", key).URL}
	first := clientOf(t, options.Client().ApplyURI(g.url)).Database("admin")
	require.NoError(t, first.RunCommand(t.Context(),
		bson.D{{Key: "createUser", Value: "root"}, {Key: "pwd", Value: "secret"}, {Key: "roles", Value: bson.A{"root"}}}).Err())
	g.root = clientOf(t, g.as(t, "root"))
	return g
}

func (g guarded) as(t *testing.T, user string) *options.ClientOptions {
	t.Helper()
	u, err := url.Parse(g.url)
	require.NoError(t, err)
	u.User = url.UserPassword(user, "secret")
	return options.Client().ApplyURI(u.String()).SetAuth(options.Credential{AuthSource: "admin", Username: user, Password: "secret"})
}

// The actions that docs/mongodb.md names for a running process, and for its sagas.
var (
	running     = []string{"find", "insert", "update", "remove"}
	sagaActions = append([]string{"listIndexes"}, running...)
)

// privilege allows actions on a collection.
func privilege(collection string, actions []string) bson.D {
	return bson.D{
		{Key: "resource", Value: bson.D{{Key: "db", Value: "test"}, {Key: "collection", Value: collection}}},
		{Key: "actions", Value: actions},
	}
}

func TestStore_Rights(t *testing.T) {
	t.Parallel()
	t.Run("an application needs no more than the rights that the documentation names (OBX-123)", requireEnoughRights)
}

func requireEnoughRights(t *testing.T) {
	t.Parallel()
	g := guard(t)
	admin := g.root.Database("admin")
	super := newStore(t, g.root, mongo.Config{Database: "test"})
	require.NoError(t, super.Ensure(t.Context()))
	require.NoError(t, super.PrepareSagas(t.Context(), "ordersaga"))

	all := bson.A{privilege("ordersaga", sagaActions)}
	for _, name := range mongo.CollectionNames() {
		all = append(all, privilege(name, running))
	}
	require.NoError(t, admin.RunCommand(t.Context(),
		bson.D{{Key: "createRole", Value: "app"}, {Key: "privileges", Value: all}, {Key: "roles", Value: bson.A{}}}).Err())
	require.NoError(t, admin.RunCommand(t.Context(),
		bson.D{{Key: "createUser", Value: "app"}, {Key: "pwd", Value: "secret"}, {Key: "roles", Value: bson.A{"app"}}}).Err())
	// A new store has nothing in memory yet.
	use := func() error {
		config := mongo.Config{Database: "test", WithoutChangeStream: true, RetainAudit: time.Millisecond}
		return usedByApp(t, newStore(t, clientOf(t, g.as(t, "app")), config))
	}
	require.NoError(t, use(), "with find, insert, update and remove on each collection")
	require.NoError(t, use(), "once more")

	// The store never reads nor deletes the documents of lines, and meta has one for ever.
	for collection, needed := range map[string][]string{
		"outmill_records": running,
		"outmill_notes":   running,
		"outmill_entries": running,
		"outmill_lines":   {"insert", "update"},
		"outmill_meta":    {"find", "update"},
		"ordersaga":       sagaActions,
	} {
		for _, action := range needed {
			revoked := bson.A{privilege(collection, []string{action})}
			require.NoError(t, admin.RunCommand(t.Context(),
				bson.D{{Key: "revokePrivilegesFromRole", Value: "app"}, {Key: "privileges", Value: revoked}}).Err())
			require.ErrorContains(t, use(), "not authorized", "without %s on %s", action, collection)
			require.NoError(t, admin.RunCommand(t.Context(),
				bson.D{{Key: "grantPrivilegesToRole", Value: "app"}, {Key: "privileges", Value: revoked}}).Err())
		}
	}
}

// usedByApp publishes, claims, settles, notes, keeps sagas, operates, and runs the janitor's calls.
func usedByApp(t *testing.T, store *mongo.Store) error {
	t.Helper()
	ctx := t.Context()
	topic := outmill.NewWorkItemID().String()
	type state struct{ N int }
	saga := &roles.Saga{Type: "ordersaga", Correlation: topic}
	join := &roles.Join{ExpectedSteps: 2}
	steps := []func() error{
		func() error { return store.RegisterGroup(ctx, outmill.Registration{Group: readers}) },
		func() error { return store.StartJoin(ctx, join) },
		func() error {
			return store.Append(ctx, &outmill.Record{Topic: topic, Joins: []outmill.JoinID{join.ID}},
				&outmill.Record{Topic: topic, Joins: []outmill.JoinID{join.ID}})
		},
		func() error { return handledByApp(ctx, store, topic, saga, &state{}) },
		func() error { return heldByApp(ctx, store) },
		func() error {
			_, err := store.FindSaga(ctx, saga.Type, saga.Correlation, &state{}, roles.SagaOptions{})
			return err
		},
		func() error { return store.UpdateSaga(ctx, saga, &state{2}, roles.SagaOptions{KeepUnknown: true}) },
		func() error { return store.DeleteSaga(ctx, saga, roles.SagaOptions{}) },
		func() error { _, err := store.DeleteFinishedSagas(ctx, saga.Type, time.Hour, 10); return err },
		func() error { _, err := store.FinishJoin(ctx, join.ID, roles.FinishRequest{}); return err },
	}
	for _, tidy := range []func(context.Context, int) (int, error){store.ReapExpired, store.ExpireDue, store.DeleteProcessed,
		store.DeleteDedupKeys, store.DeleteJoins} {
		steps = append(steps, func() error { _, err := tidy(ctx, 10); return err })
	}
	for _, step := range append(steps, func() error { return deletesANote(ctx, store) },
		func() error { return operatedByApp(ctx, store, topic) }) {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// handledByApp handles a message in a transaction, and acks it and another one.
func handledByApp(ctx context.Context, store *mongo.Store, topic string, saga *roles.Saga, state any) error {
	found, err := store.Claim(ctx, claimOf(outmill.NewOwnerToken(), 2, outmill.OrderNone, topic))
	if err != nil {
		return err
	}
	if len(found) < 2 {
		return fmt.Errorf("claimed %d of 2", len(found))
	}
	leases := leasesOf(found)
	err = store.Transact(ctx, func(ctx context.Context) error {
		note := roles.Note{Consumer: "c", Key: topic, Retention: time.Hour, Lease: leases[0]}
		if _, err := store.PutNote(ctx, note, 0); err != nil {
			return err
		}
		if _, err := store.HasNote(ctx, "c", topic); err != nil {
			return err
		}
		return store.InsertSaga(ctx, saga, state, roles.SagaOptions{})
	})
	if err != nil {
		return err
	}
	return store.Ack(ctx, "w", leases)
}

// heldByApp claims a key of which another worker has the first record, and again when that is acked.
func heldByApp(ctx context.Context, store *mongo.Store) error {
	topic := outmill.NewWorkItemID().String()
	if err := store.Append(ctx, &outmill.Record{Topic: topic, Key: "k"}, &outmill.Record{Topic: topic, Key: "k"}); err != nil {
		return err
	}
	claim := func(limit int) ([]*outmill.Record, error) {
		return store.Claim(ctx, claimOf(outmill.NewOwnerToken(), limit, outmill.OrderKey, topic))
	}
	first, err := claim(1)
	if err != nil {
		return err
	}
	if _, err := claim(2); err != nil { // it holds the second record
		return err
	}
	if err := store.Ack(ctx, "w", leasesOf(first)); err != nil {
		return err
	}
	second, err := claim(2)
	if err != nil {
		return err
	}
	if len(second) != 1 {
		return fmt.Errorf("claimed %d of 1", len(second))
	}
	return store.Ack(ctx, "w", leasesOf(second))
}

// deletesANote puts notes that end at once until it has deleted one itself, because the server
// deletes such notes too.
func deletesANote(ctx context.Context, store *mongo.Store) error {
	for {
		brief := roles.Note{Consumer: "c", Key: outmill.NewWorkItemID().String(), Retention: time.Millisecond}
		if _, err := store.PutNote(ctx, brief, 0); err != nil {
			return err
		}
		if n, err := store.DeleteNotes(ctx, 10); err != nil || n > 0 {
			return err
		}
	}
}

// operatedByApp makes the calls of an operator, and deletes their entries in the audit.
func operatedByApp(ctx context.Context, store *mongo.Store, topic string) error {
	record := &outmill.Record{Topic: topic}
	if err := store.Append(ctx, record); err != nil {
		return err
	}
	found, err := store.Claim(ctx, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone, topic))
	if err != nil {
		return err
	}
	if err := store.Fail(ctx, []outmill.Settlement{{Lease: found[0].Lease()}}); err != nil {
		return err
	}
	page, err := store.DeadLetters(ctx, outmill.ListQuery{Topic: topic})
	if err != nil {
		return err
	}
	seen := storekit.FingerprintOf(page.Letters[0].Record)
	if _, err := store.Edit(ctx, record.ID, roles.Edit{Seen: seen, Payload: []byte("new")}); err != nil {
		return err
	}
	if _, err := store.Skip(ctx, record.ID); err != nil {
		return err
	}
	if _, err := store.Audited(ctx, roles.AuditQuery{}); err != nil {
		return err
	}
	for { // until their millisecond is over
		if n, err := store.DeleteOldAudit(ctx, 10); err != nil || n > 0 {
			return err
		}
	}
}
