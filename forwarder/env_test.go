package forwarder_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/sqlite"
)

const (
	// patience limits the wait for an event that must happen.
	patience = 5 * time.Minute
	tick     = 2 * time.Millisecond
)

// newStore returns a store that does not wait for the disk, because its file need not outlive
// a crash of the machine.
func newStore(tb testing.TB) *sqlite.Store {
	tb.Helper()
	return openStore(tb, "file:"+filepath.Join(tb.TempDir(), "outbox.db")+"?_pragma=synchronous(OFF)", sqlite.Config{})
}

func openStore(tb testing.TB, file string, config sqlite.Config) *sqlite.Store {
	tb.Helper()
	store, err := sqlite.Open(tb.Context(), file, config, nil)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, store.Close()) })
	require.NoError(tb, store.Ensure(tb.Context()))
	return store
}

// quick has short waits, so that retries come soon.
func quick() forwarder.Config {
	return forwarder.Config{
		PollInterval:    5 * time.Millisecond,
		MaxErrorBackoff: 5 * time.Millisecond,
		Retry:           outmill.RetryPolicy{InitialInterval: time.Millisecond, MaxInterval: time.Millisecond},
	}
}

func newForwarder(tb testing.TB, store outmill.Queue, pub message.Publisher, cfg forwarder.Config) *forwarder.Forwarder {
	tb.Helper()
	fwd, err := forwarder.New(alternate(store, pub), pub, cfg, nil)
	require.NoError(tb, err)
	alternateBatches(fwd, pub)
	return fwd
}

// start runs a forwarder until the test ends.
func start(tb testing.TB, store outmill.Queue, pub message.Publisher, cfg forwarder.Config) *forwarder.Forwarder {
	tb.Helper()
	return startLogged(tb, store, pub, cfg, nil)
}

func startLogged(tb testing.TB, store outmill.Queue, pub message.Publisher, cfg forwarder.Config,
	log watermill.LoggerAdapter) *forwarder.Forwarder {
	tb.Helper()
	fwd, err := forwarder.New(alternate(store, pub), pub, cfg, log)
	require.NoError(tb, err)
	alternateBatches(fwd, pub)
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(context.Background()) }()
	<-fwd.Running()
	tb.Cleanup(func() {
		require.NoError(tb, fwd.Close())
		require.NoError(tb, <-ended)
	})
	return fwd
}

// rec returns a record; its message id identifies it in the test.
func rec(topic, key, id string) *outmill.Record {
	return &outmill.Record{Topic: topic, Key: key, MessageID: id, Payload: []byte("payload of " + id)}
}

// recs returns n records of a key, named by the key (or topic) and numbers from 0.
func recs(topic, key string, n int) []*outmill.Record {
	records := make([]*outmill.Record, n)
	for i := range records {
		records[i] = rec(topic, key, nameOf(topic, key, i))
	}
	return records
}

func nameOf(topic, key string, i int) string {
	return fmt.Sprintf("%s/%s/%04d", topic, key, i)
}

func namesOf(topic, key string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = nameOf(topic, key, i)
	}
	return names
}

func add(tb testing.TB, store outmill.Writer, records ...*outmill.Record) {
	tb.Helper()
	require.NoError(tb, store.Append(tb.Context(), records...))
}

// register registers the group before its forwarder runs, so that it gets all further
// records.
func register(tb testing.TB, store outmill.Queue) {
	tb.Helper()
	require.NoError(tb, store.RegisterGroup(tb.Context(), outmill.Registration{Group: forwarder.DefaultGroup}))
}

func list(tb tester, store outmill.Inspector, status outmill.Status) []*outmill.Record {
	tb.Helper()
	records, err := store.List(tb.Context(), outmill.ListQuery{Content: true, Status: status, Limit: 10_000})
	require.NoError(tb, err)
	return records
}

func idsOf(records []*outmill.Record) []string {
	ids := make([]string, len(records))
	for i, r := range records {
		ids[i] = r.MessageID
	}
	slices.Sort(ids)
	return ids
}

// requireEmpty waits until the store has no records.
func requireEmpty(tb testing.TB, store outmill.Inspector) {
	tb.Helper()
	left := []*outmill.Record{}
	defer func() {
		for _, r := range left[:min(len(left), 3)] {
			tb.Logf("left: %s %s, attempts %d, claims %d, expiries %d, %q", r.MessageID, r.Status, r.Attempts, r.Claims, r.Expiries, r.LastError)
		}
	}()
	require.Eventually(tb, func() bool {
		left = list(tb, store, "")
		return len(left) == 0
	}, patience, tick, "records are left in the store")
}

// requireDead waits until exactly these records are dead.
func requireDead(tb testing.TB, store outmill.Inspector, ids ...string) []*outmill.Record {
	tb.Helper()
	var dead []*outmill.Record
	require.Eventually(tb, func() bool {
		dead = list(tb, store, outmill.StatusDead)
		return len(dead) >= len(ids)
	}, patience, tick, "too few records are dead")
	slices.Sort(ids)
	require.Equal(tb, ids, idsOf(dead))
	return dead
}

// requireUntouched checks that no record is dead or has a counted attempt.
func requireUntouched(tb testing.TB, store outmill.Inspector) {
	tb.Helper()
	for _, r := range list(tb, store, "") {
		require.Zero(tb, r.Attempts, "%s lost an attempt: %s", r.MessageID, r.LastError)
		require.NotEqual(tb, outmill.StatusDead, r.Status, "%s is dead: %s", r.MessageID, r.LastError)
	}
}
