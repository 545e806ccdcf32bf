package driver_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/roles"
)

// between is what another process does between what a process knows and the lock of its claim.
type between struct {
	happens func(w *takingWorld, other *engine.Engine)
	// want are the keys that the claim returns, and later those of the next one.
	want, later []string
}

// The topic has a, b and a again. An open transaction has a row of the key c before them.
var takingRaces = map[string]between{
	"nothing happens": {func(*takingWorld, *engine.Engine) {}, []string{"a", "b", "a"}, []string{"d"}},
	"the topic is paused": {func(w *takingWorld, other *engine.Engine) {
		require.NoError(w, other.Pause(w.Context(), roles.PauseScope{Topic: w.topic}, "me", "a reason"))
	}, []string{}, []string{}},
	"a key is paused": {func(w *takingWorld, other *engine.Engine) {
		require.NoError(w, other.Pause(w.Context(), roles.PauseScope{Topic: w.topic, Key: "a"}, "me", "a reason"))
	}, []string{"b"}, []string{"d"}},
	"a row is deleted": {func(w *takingWorld, other *engine.Engine) {
		_, err := other.Delete(w.Context(), w.ofKey("b"))
		require.NoError(w, err)
	}, []string{"a", "a"}, []string{"d"}},
	"the group is dropped": {func(w *takingWorld, other *engine.Engine) {
		_, err := other.DropGroup(w.Context(), "readers")
		require.NoError(w, err)
	}, []string{}, []string{}},
	"the group is dropped, and comes again": {func(w *takingWorld, other *engine.Engine) {
		_, err := other.DropGroup(w.Context(), "readers")
		require.NoError(w, err)
		require.NoError(w, other.RegisterGroup(w.Context(), outmill.Registration{Group: "readers"}))
	}, []string{"a", "b", "a"}, []string{"d"}},
	"another group registers": {func(w *takingWorld, other *engine.Engine) {
		require.NoError(w, other.RegisterGroup(w.Context(), outmill.Registration{Group: "others"}))
	}, []string{"a", "b", "a"}, []string{"d"}},
	"another owner claims the first row": {func(w *takingWorld, other *engine.Engine) {
		w.claimedBy(other, 1)
	}, []string{"b"}, []string{"d"}},
	"another owner claims all, and its process has not acked": {func(w *takingWorld, other *engine.Engine) {
		w.claimedBy(other, 10)
	}, []string{}, []string{"d"}},
	"another owner claims all, and acks": {func(w *takingWorld, other *engine.Engine) {
		require.NoError(w, other.Ack(w.Context(), "worker", leasesOf(w.claimedBy(other, 10))))
	}, []string{}, []string{"d"}},
	"another owner claims the first row, and gives it back for later": {func(w *takingWorld, other *engine.Engine) {
		got := w.claimedBy(other, 1)
		require.NoError(w, other.Abandon(w.Context(), []outmill.Settlement{{Lease: got[0].Lease(), Delay: time.Hour}}))
	}, []string{"b"}, []string{"d"}},
	"another owner claims the first row, and gives it back": {func(w *takingWorld, other *engine.Engine) {
		got := w.claimedBy(other, 1)
		require.NoError(w, other.Abandon(w.Context(), []outmill.Settlement{{Lease: got[0].Lease()}}))
	}, []string{"a", "b", "a"}, []string{"d"}},
	"a transaction that was open is committed": {func(w *takingWorld, _ *engine.Engine) { require.NoError(w, w.open.Commit(w.Context())) },
		[]string{"c", "a", "b", "a"}, []string{"d"}},
	"more is appended": {func(w *takingWorld, other *engine.Engine) {
		require.NoError(w, other.Append(w.Context(), &outmill.Record{Topic: w.topic, Key: "e"}))
	}, []string{"a", "b", "a", "e"}, []string{"d"}},
}

// claimedBy is what another process claims.
func (w *takingWorld) claimedBy(other *engine.Engine, limit int) []*outmill.Record {
	got, err := other.Claim(w.Context(), outmill.ClaimRequest{
		Owner: outmill.NewOwnerToken(), Group: "readers", Topics: outmill.Topics{Include: []string{w.topic}}, Limit: limit, Lease: time.Hour,
		Order: outmill.OrderKey,
	})
	require.NoError(w, err)
	require.NotEmpty(w, got)
	return got
}

func (w *takingWorld) ofKey(key string) outmill.WorkItemID {
	list, err := w.List(w.Context(), outmill.ListQuery{Group: "readers", Topic: w.topic, Key: key, Limit: 10})
	require.NoError(w, err)
	require.Len(w, list, 1)
	return list[0].ID
}

// A claim of its own finds out behind its lock what others have done since the process has read what it knows.
func TestTake_BehindWhatOthersDo(t *testing.T) {
	t.Parallel()
	for name, c := range takingRaces {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.run(t, func(*takingWorld, *engine.Engine) {})
		})
	}
}

// A record of the key h is held, and set free between what the process knows and the lock of its claim: then that is not one of its own.
func TestTake_BesideAHeldRow(t *testing.T) {
	t.Parallel()
	scope := roles.PauseScope{Topic: "raced", Key: "h"}
	t.Run("a pause ends", func(t *testing.T) {
		t.Parallel()
		between{func(w *takingWorld, other *engine.Engine) {
			ended, err := other.Resume(w.Context(), scope)
			require.NoError(w, err)
			require.True(w, ended)
		}, []string{"h", "a", "b", "a"}, []string{"d"}}.run(t, func(w *takingWorld, other *engine.Engine) {
			require.NoError(w, w.Pause(w.Context(), scope, "me", "a reason"))
			w.append("h")
			require.Empty(w, w.keys())
			w.set("look_at = 0")
		})
	})
	t.Run("another owner acks", func(t *testing.T) {
		t.Parallel()
		var leases []outmill.Lease
		between{func(w *takingWorld, other *engine.Engine) {
			require.NoError(w, other.Ack(w.Context(), "worker", leases))
		}, []string{"h", "a", "b", "a"}, []string{"d"}}.run(t, func(w *takingWorld, other *engine.Engine) {
			w.append("h")
			leases = leasesOf(w.claimedBy(other, 10))
			w.append("h")
			require.Empty(w, w.keys())
			w.set("look_at = 0")
		})
	})
	t.Run("nothing happens", func(t *testing.T) {
		t.Parallel()
		between{func(*takingWorld, *engine.Engine) {}, []string{"a", "b", "a"}, []string{"d"}}.run(t, func(w *takingWorld, other *engine.Engine) {
			w.append("h")
			w.claimedBy(other, 10)
			w.append("h")
			require.Empty(w, w.keys())
			w.set("look_at = 0")
		})
	})
}

// run has another process act between what a process knows and the lock of its claim. given comes before the rows of the topic.
func (c between) run(t *testing.T, given func(w *takingWorld, other *engine.Engine)) {
	t.Helper()
	s, counts := openTaking(t)
	w := &takingWorld{T: t, logged: s, counts: counts, topic: "raced", owner: outmill.NewOwnerToken()}
	other := engine.New(s.another(t), engine.Config{})
	for _, process := range []*engine.Engine{s.Engine, other} {
		// Both know the registrations and the pauses.
		require.NoError(t, process.Append(t.Context(), &outmill.Record{Topic: w.topic, Key: "first"}))
		require.NoError(t, process.Ack(t.Context(), "worker", leasesOf(w.claimedBy(process, 10))))
	}
	given(w, other)
	var err error
	w.open, err = s.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = w.open.Rollback(context.WithoutCancel(t.Context())) }()
	require.NoError(t, s.Append(s.driver.WithTx(t.Context(), w.open), &outmill.Record{Topic: w.topic, Key: "c"}))
	for _, key := range []string{"a", "b", "a"} {
		w.append(key)
	}
	s.driver.ForgetRefusals()
	b, happened := &before{statement: "log_claim"}, false
	b.happens = func() {
		happened = true
		c.happens(w, other)
	}
	require.Equal(t, c.want, w.keysIn(context.WithValue(t.Context(), beforeKey{}, b)))
	require.True(t, happened)
	w.append("d")
	require.Equal(t, c.later, w.keysIn(t.Context()))
}

// keysIn claims, and returns the keys of what it has got.
func (w *takingWorld) keysIn(ctx context.Context) []string {
	w.Helper()
	got, err := w.Claim(ctx, outmill.ClaimRequest{
		Owner: w.owner, Worker: "worker", Group: "readers", Topics: outmill.Topics{Include: []string{w.topic}}, Limit: 10, Lease: time.Hour,
		Order: outmill.OrderKey,
	})
	require.NoError(w, err)
	keys := []string{}
	for _, r := range got {
		keys = append(keys, r.Key)
	}
	return keys
}
