package tenants_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/tenants"
)

// denier is a member that can do nothing, has the roles of the janitor, and does not hear of others.
type denier struct{ *sqlite.Store }

func (denier) Claim(context.Context, outmill.ClaimRequest) ([]*outmill.Record, error) {
	return nil, errAway
}
func (denier) Extend(context.Context, time.Duration, []outmill.Lease) ([]outmill.Lease, error) {
	return nil, errAway
}
func (denier) RegisterGroup(context.Context, ...outmill.Registration) error { return errAway }
func (denier) Ack(context.Context, string, []outmill.Lease) error           { return errAway }
func (denier) Abandon(context.Context, []outmill.Settlement) error          { return errAway }
func (denier) Fail(context.Context, []outmill.Settlement) error             { return errAway }
func (denier) Snooze(context.Context, []outmill.Settlement) error           { return errAway }
func (denier) Release(context.Context, []outmill.Lease) error               { return errAway }
func (denier) Maintain(context.Context) (bool, error)                       { return false, errAway }
func (denier) ReapExpired(context.Context, int) (int, error)                { return 0, errAway }
func (denier) ExpireDue(context.Context, int) (int, error)                  { return 0, errAway }
func (denier) ExpireRegistrations(context.Context, int) (int, int, error)   { return 0, 0, errAway }
func (denier) DeleteProcessed(context.Context, int) (int, error)            { return 0, errAway }
func (denier) DeleteDedupKeys(context.Context, int) (int, error)            { return 0, errAway }
func (denier) DeleteNotes(context.Context, int) (int, error)                { return 0, errAway }
func (denier) DeleteOldAudit(context.Context, int) (int, error)             { return 0, errAway }
func (denier) DeleteJoins(context.Context, int) (int, error)                { return 0, errAway }
func (denier) DeleteOldSagas(context.Context, int) (int, error)             { return 0, errAway }

// FailingCalls is that of a store that listens.
func (denier) FailingCalls() []outmill.FailingCall {
	return []outmill.FailingCall{{Call: storekit.CallListen, Since: time.Now().Add(-time.Hour), Times: 3, Err: "refused"}}
}

// repeated are all calls that programs repeat, on the set.
var repeated = []func(ctx context.Context, set *tenants.Set, lease outmill.Lease){
	func(ctx context.Context, set *tenants.Set, _ outmill.Lease) {
		_ = set.RegisterGroup(ctx, outmill.Registration{Group: "g"})
	},
	func(ctx context.Context, set *tenants.Set, _ outmill.Lease) { _, _ = set.Claim(ctx, request(1)) },
	func(ctx context.Context, set *tenants.Set, l outmill.Lease) {
		_, _ = set.Extend(ctx, time.Minute, []outmill.Lease{l})
	},
	func(ctx context.Context, set *tenants.Set, l outmill.Lease) { _ = set.Ack(ctx, "", []outmill.Lease{l}) },
	func(ctx context.Context, set *tenants.Set, l outmill.Lease) { _ = set.Release(ctx, []outmill.Lease{l}) },
	func(ctx context.Context, set *tenants.Set, l outmill.Lease) {
		_ = set.Abandon(ctx, []outmill.Settlement{{Lease: l}})
	},
	func(ctx context.Context, set *tenants.Set, l outmill.Lease) {
		_ = set.Fail(ctx, []outmill.Settlement{{Lease: l}})
	},
	func(ctx context.Context, set *tenants.Set, l outmill.Lease) {
		_ = set.Snooze(ctx, []outmill.Settlement{{Lease: l}})
	},
	func(ctx context.Context, set *tenants.Set, _ outmill.Lease) { _, _ = set.Maintain(ctx) },
	func(ctx context.Context, set *tenants.Set, _ outmill.Lease) {
		_, _, _ = set.ExpireRegistrations(ctx, 10)
	},
	tidies((*tenants.Set).ReapExpired), tidies((*tenants.Set).ExpireDue), tidies((*tenants.Set).DeleteProcessed),
	tidies((*tenants.Set).DeleteDedupKeys), tidies((*tenants.Set).DeleteNotes), tidies((*tenants.Set).DeleteOldAudit),
	tidies((*tenants.Set).DeleteJoins), tidies((*tenants.Set).DeleteOldSagas),
}

func tidies(work func(*tenants.Set, context.Context, int) (int, error)) func(context.Context, *tenants.Set, outmill.Lease) {
	return func(ctx context.Context, set *tenants.Set, _ outmill.Lease) { _, _ = work(set, ctx, 10) }
}

func TestSet_FailingCalls(t *testing.T) {
	t.Parallel()

	t.Run("each repeated call that fails in a member is named with the member, and the others are well", func(t *testing.T) {
		t.Parallel()
		for i, call := range repeated {
			store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "outbox.db"), sqlite.Config{EnsureSchema: true}, nil)
			require.NoError(t, err)
			well, ill := newSpy(t, "well"), denier{store}
			set, err := tenants.New(t.Context(), tenants.Config{Discovery: tenants.Static{
				{Key: "well", Store: well}, {Key: "ill", Store: ill},
			}, CallTimeout: patient}, nil)
			require.NoError(t, err)
			call(t.Context(), set, outmill.Lease{ID: outmill.NewWorkItemID(), Owner: outmill.NewOwnerToken(), Store: "ill"})
			failing := set.FailingCalls()
			require.Len(t, failing, 2, "call %d: %v", i, failing)
			require.Equal(t, storekit.CallListen, failing[0].Call)
			for _, c := range failing {
				require.Equal(t, "ill", c.Store)
			}
			require.Contains(t, failing[1].Err, errAway.Error())
			require.NoError(t, set.Close())
			require.NoError(t, ill.Close())
		}
	})

	t.Run("a call that succeeds in the member again is named no longer, and so is a discovery that answers", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, map[string]string{"a": "mem:a"})
		r := w.set(nil)
		store := w.storesOf("mem:a")[0]
		store.fail("Claim", errAway)
		w.change(func() { w.err = errAway })
		_, err := r.set.Claim(t.Context(), request(1))
		require.Error(t, err)
		require.Error(t, r.set.Refresh(t.Context()))
		failing := r.set.FailingCalls()
		require.Len(t, failing, 2)
		require.Equal(t, storekit.CallClaim, failing[0].Call)
		require.Equal(t, "a", failing[0].Store)
		require.Equal(t, storekit.CallDiscover, failing[1].Call)
		require.Empty(t, failing[1].Store)
		store.fail("Claim", nil)
		w.change(func() { w.err = nil })
		require.NoError(t, r.set.Refresh(t.Context()))
		require.Eventually(t, func() bool {
			_, err := r.set.Claim(t.Context(), request(1))
			return err == nil && len(r.set.FailingCalls()) == 0
		}, soon, tick)
	})

	t.Run("the database of a member gets its own failing calls, doctor names them once, and other members' are not in it", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		since := time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
		of := func(store string) outmill.FailingCall {
			return outmill.FailingCall{Call: storekit.CallClaim, Store: store, Since: since, Times: 5, Err: "away"}
		}
		whole := outmill.FailingCall{Call: storekit.CallDiscover, Since: since, Times: 2, Err: "away"}
		reg := outmill.Registration{Worker: "reader", Failing: []outmill.FailingCall{of("a"), of("b"), whole}}
		require.NoError(t, r.set.RegisterGroup(t.Context(), reg))
		for name, store := range r.members {
			groups, err := store.Groups(t.Context())
			require.NoError(t, err)
			require.Equal(t, []outmill.FailingCall{of(name), whole}, groups[0].Workers[0].Failing)
		}
		groups, err := r.set.Groups(t.Context())
		require.NoError(t, err)
		require.ElementsMatch(t, []outmill.FailingCall{of("a"), of("b"), whole}, groups[0].Workers[0].Failing)
		report, err := monitor.Doctor(t.Context(), r.set, monitor.DoctorConfig{})
		require.NoError(t, err)
		var stores []string
		for _, p := range report.Problems {
			if p.Kind == "call_fails" {
				require.Equal(t, monitor.Warning, p.Severity)
				stores = append(stores, p.Store)
			}
		}
		slices.Sort(stores)
		require.Equal(t, []string{"", "a", "b"}, stores)
	})
}
