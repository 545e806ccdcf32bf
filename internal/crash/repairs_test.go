//go:build outmill_crash

package crash_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/crash"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// envRepair names the environment variable with the call of an operator that a child process makes.
const envRepair = "OUTMILL_CRASH_REPAIR"

// repairing has the calls, in their order. Each has the records of the topic of its name.
var repairing = []struct {
	name string
	call func(ctx context.Context, store outmill.Store) error
	// records is how many dead records the topic has. Those behind the first are parked if keyed.
	records int
	keyed   bool
}{
	{"edit", edit, 1, false},
	{"skip", skip, 7, true},
	{"requeue", requeueWhere, 5, true},
	{"delete", deleteWhere, 5, false},
	{"pause", pauseTopic, 0, false},
	{"resume", resumeTopic, 0, false},
}

const (
	edited = "edited"
	// mostKills bounds how often the process of one call is killed.
	mostKills = 40
	group     = outmill.DefaultGroup
)

var paused = roles.PauseScope{Topic: "paused"}

// repair makes the call that envRepair names, as an operator does who does not know what an earlier
// process has done.
func repair(ctx context.Context, store outmill.Store) error {
	for _, r := range repairing {
		if r.name == os.Getenv(envRepair) {
			return r.call(storekit.WithActor(ctx, "ann"), store)
		}
	}
	return fmt.Errorf("there is no call %q", os.Getenv(envRepair))
}

func roleOf[R any](store outmill.Store) R {
	role, ok := outmill.As[R](store)
	if !ok {
		panic(fmt.Sprintf("the store has no %T", role))
	}
	return role
}

// first returns the first record of the topic, or nil if there is none.
func first(ctx context.Context, store outmill.Store, topic string) (*outmill.Record, error) {
	found, err := store.List(ctx, outmill.ListQuery{Content: true, Topic: topic, MessageID: topic + " 0"})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

func edit(ctx context.Context, store outmill.Store) error {
	r, err := first(ctx, store, "edit")
	if err != nil {
		return err
	}
	if string(r.Payload) == edited {
		return nil
	}
	_, err = roleOf[roles.Repairs](store).Edit(ctx, r.ID, roles.Edit{Seen: storekit.FingerprintOf(r), Payload: []byte(edited)})
	return err
}

func skip(ctx context.Context, store outmill.Store) error {
	r, err := first(ctx, store, "skip")
	if err != nil || r == nil {
		return err
	}
	for done := false; !done && err == nil; {
		var skipped roles.Skipped
		skipped, err = roleOf[roles.Repairs](store).Skip(ctx, r.ID)
		done = skipped.Done
	}
	return err
}

func requeueWhere(ctx context.Context, store outmill.Store) error {
	return whole(ctx, "requeue", roleOf[roles.Repairs](store).RequeueWhere)
}

func deleteWhere(ctx context.Context, store outmill.Store) error {
	return whole(ctx, "delete", roleOf[roles.Repairs](store).DeleteWhere)
}

// whole calls change for pages of two records.
func whole(ctx context.Context, topic string, change func(context.Context, outmill.ListQuery) (roles.Page, error)) error {
	query := outmill.ListQuery{Topic: topic, Status: outmill.StatusDead, Limit: 2}
	for {
		page, err := change(ctx, query)
		if err != nil || page.Done {
			return err
		}
		query.After = page.Next
	}
}

func pauseTopic(ctx context.Context, store outmill.Store) error {
	return roleOf[roles.Pauses](store).Pause(ctx, paused, "ann", "")
}

func resumeTopic(ctx context.Context, store outmill.Store) error {
	_, err := roleOf[roles.Pauses](store).Resume(ctx, paused)
	return err
}

func TestRepairs(t *testing.T) {
	t.Parallel()
	for name, address := range engines {
		if name == "MongoDB" {
			address = inImpatientMongo
		}
		for _, step := range []string{crash.BeforeCommit, crash.AfterCommit} {
			t.Run("of an operator lose and double nothing after crashes on "+name+" "+step, func(t *testing.T) {
				t.Parallel()
				(&repairs{t: t, address: address(t)}).survive(step)
			})
		}
	}
}

// inImpatientMongo is on a server of its own, which soon aborts the transaction of a dead process.
func inImpatientMongo(t *testing.T) string {
	t.Helper()
	server := mongotest.Own(t)
	client, err := driver.Connect(options.Client().ApplyURI(server.URL))
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Disconnect(context.WithoutCancel(t.Context()))) }()
	require.NoError(t, client.Database("admin").RunCommand(t.Context(),
		bson.D{{Key: "setParameter", Value: 1}, {Key: "transactionLifetimeLimitSeconds", Value: 1}}).Err())
	return mongoAddress(t, server.URL, "crash")
}

// repairs is a store whose operator's processes are killed.
type repairs struct {
	t        *testing.T
	address  string
	store    outmill.Store
	appended int
}

func (w *repairs) survive(step string) {
	store, err := outmill.Open(w.t.Context(), w.address, nil)
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, store.Close()) }()
	w.store = store
	require.NoError(w.t, store.Ensure(w.t.Context()))
	require.NoError(w.t, store.RegisterGroup(w.t.Context(), outmill.Registration{Group: group}))
	for _, r := range repairing {
		w.bury(r.name, r.records, r.keyed)
	}
	for _, r := range repairing {
		kills := 0
		for w.killed(r.name, fmt.Sprint(step, ":", kills)) {
			w.check()
			kills++
			require.Less(w.t, kills, mostKills, "%s comes to an end", r.name)
		}
		require.NotZero(w.t, kills, "the process of %s was to be killed", r.name)
		w.check()
		list, err := roleOf[roles.Pauses](store).Paused(w.t.Context())
		require.NoError(w.t, err)
		require.Equal(w.t, r.name == "pause", len(list) == 1, "the pause is made or not")
	}
	w.checkEnd()
}

// bury appends records to the topic, and makes them dead.
func (w *repairs) bury(topic string, records int, keyed bool) {
	key := ""
	if keyed {
		key = "key"
	}
	for i := range records {
		require.NoError(w.t, w.store.Append(w.t.Context(), &outmill.Record{Topic: topic, Key: key, MessageID: fmt.Sprint(topic, " ", i)}))
	}
	w.appended += records
	for len(w.deadOf(topic)) < records {
		for _, r := range w.claim(topic, 1) {
			require.NoError(w.t, w.store.Fail(w.t.Context(), []outmill.Settlement{{Lease: r.Lease(), Park: keyed}}))
		}
	}
}

func (w *repairs) claim(topic string, limit int) []*outmill.Record {
	found, err := w.store.Claim(w.t.Context(), outmill.ClaimRequest{
		Owner: outmill.NewOwnerToken(), Group: group, Limit: limit, Lease: patience, Order: outmill.OrderKey, KeyPolicy: outmill.KeyPark,
		Topics: outmill.Topics{Include: []string{topic}},
	})
	require.NoError(w.t, err)
	return found
}

// killed runs a process that makes the call, and reports whether it was killed at the step.
func (w *repairs) killed(name, at string) bool {
	err := child(w.t, w.address, envRepair+"="+name, crash.EnvBatch+"=1", crash.EnvAt+"="+at)
	if err == nil {
		return false
	}
	require.ErrorContains(w.t, err, "killed", "%s at %s", name, at)
	return true
}

func (w *repairs) deadOf(topic string) []*outmill.Record {
	found, err := w.store.List(w.t.Context(), outmill.ListQuery{Content: true, Topic: topic, Status: outmill.StatusDead})
	require.NoError(w.t, err)
	return found
}

func (w *repairs) dead(topic string) int { return len(w.deadOf(topic)) }

// audited returns how many records the entries of each action count.
func (w *repairs) audited() map[string]int {
	page, err := roleOf[roles.Repairs](w.store).Audited(w.t.Context(), roles.AuditQuery{Limit: 1000})
	require.NoError(w.t, err)
	counts := map[string]int{}
	for _, entry := range page.Entries {
		require.Equal(w.t, "ann", entry.Actor)
		counts[string(entry.Action)] += entry.Count
	}
	return counts
}

// check compares the records with the audit after each crash.
func (w *repairs) check() {
	counts := w.audited()
	for _, r := range repairing {
		if r.records > 0 && r.name != "edit" {
			require.Equal(w.t, r.records-counts[r.name], w.dead(r.name), "the audit has what %s has changed: %v", r.name, counts)
		}
	}
	skipped, err := first(w.t.Context(), w.store, "skip")
	require.NoError(w.t, err)
	removed := counts["delete"]
	if skipped == nil {
		removed++
	}
	all, err := w.store.List(w.t.Context(), outmill.ListQuery{Content: true, Limit: 1000})
	require.NoError(w.t, err)
	require.Len(w.t, all, w.appended-removed, "no record is lost or doubled")
	r, err := first(w.t.Context(), w.store, "edit")
	require.NoError(w.t, err)
	require.Equal(w.t, map[string]int{"": 0, edited: 1}[string(r.Payload)], counts["edit"], "the audit has the edit once")
}

// checkEnd handles what came back.
func (w *repairs) checkEnd() {
	require.Equal(w.t, map[string]int{"edit": 1, "skip": 7, "requeue": 5, "delete": 5}, w.audited())
	for topic, want := range map[string][]string{
		"skip":    {"skip 1", "skip 2", "skip 3", "skip 4", "skip 5", "skip 6"},
		"requeue": {"requeue 0", "requeue 1", "requeue 2", "requeue 3", "requeue 4"},
		"delete":  nil,
	} {
		var names []string
		for end := time.Now().Add(patience); len(names) < len(want) && time.Now().Before(end); {
			for _, r := range w.claim(topic, 100) {
				names = append(names, r.MessageID)
				require.NoError(w.t, w.store.Ack(w.t.Context(), "", []outmill.Lease{r.Lease()}))
			}
		}
		require.Equal(w.t, want, names, "each comes back once, in the order of its key")
		require.Empty(w.t, w.claim(topic, 100))
	}
}
