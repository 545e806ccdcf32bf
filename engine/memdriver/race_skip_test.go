package memdriver_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/memdriver"
	"github.com/outmill/outmill/roles"
)

// parkedKey appends k1 to k3, fails k1 and has a claim park the others. It returns k1.
func (r *race) parkedKey() *outmill.Record {
	r.Helper()
	ctx := r.Context()
	r.register(ctx)
	r.append(ctx, rec("k1", "k"))
	k1 := r.claim(ctx, a, 1, parks)
	r.append(ctx, rec("k2", "k"), rec("k3", "k"))
	r.ok(r.store.Fail(ctx, []outmill.Settlement{{Lease: leases(k1...)[0], Err: "bad", Park: true}}))
	require.Empty(r.T, r.claim(ctx, a, 5, parks))
	return k1[0]
}

// skip skips the record. It calls the function between after the search for the parked rows, and requires that one transaction
// releases them all.
func (r *race) skip(id outmill.WorkItemID, released int, between func()) {
	r.Helper()
	calls := map[string]int{}
	skipped, err := r.store.Skip(memdriver.WithHook(r.Context(), func(call string) {
		if calls[call]++; call == "Apply" && calls[call] == 1 {
			between()
		}
	}), id)
	r.ok(err)
	require.Equal(r.T, 1, calls["Lock"], "each step locks the record")
	require.Equal(r.T, roles.Skipped{Done: true, Released: released}, skipped)
}

// A Skip that one transaction can do is done in one, although a claim meets a further record of the key in the middle of it. In
// a second step, the key would go on while its first record can still be requeued.
func TestRace_ClaimInTheMiddleOfASkip(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	k1 := r.parkedKey()
	r.append(r.Context(), rec("k4", "k"))
	var got []string
	claimed := make(chan bool)
	r.skip(k1.ID, 2, func() {
		go func() {
			defer close(claimed)
			got = ids(r.claim(r.Context(), b, 5, parks))
		}()
		r.reaches(claimed)
	})
	<-claimed
	require.Equal(t, []string{"k2", "k3", "k4"}, append(got, ids(r.claim(r.Context(), b, 5, parks))...))
}

// A Skip that one transaction can do is done in one, although another record of the key fails in the middle of it.
func TestRace_FailInTheMiddleOfASkip(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	k1 := r.parkedKey()
	r.append(ctx, rec("k4", "k"))
	k4 := r.claim(ctx, b, 5, anyOrder)
	require.Equal(t, []string{"k4"}, ids(k4))
	r.skip(k1.ID, 2, func() {
		r.ok(r.store.Fail(ctx, []outmill.Settlement{{Lease: leases(k4...)[0], Err: "bad", Park: true}}))
	})
	require.Equal(t, []string{"k2", "k3"}, ids(r.claim(ctx, a, 5, parks)))
	left, err := r.store.DeadLetters(ctx, outmill.ListQuery{Limit: 5})
	r.ok(err)
	require.Len(t, left.Letters, 1, "k4 waits for an operator")
}
