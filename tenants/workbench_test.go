package tenants_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/tenants"
)

// mute is a store whose audit fails.
type mute struct{ *spy }

func (m mute) Audited(context.Context, roles.AuditQuery) (roles.AuditPage, error) {
	return roles.AuditPage{}, errAway
}

// letters returns the dead letters of the set, in pages.
func (r *rig) letters(limit int) (all []roles.DeadLetter) {
	r.Helper()
	query := outmill.ListQuery{Limit: limit}
	for range 200 {
		page, err := r.set.DeadLetters(r.Context(), query)
		require.NoError(r, err)
		require.LessOrEqual(r, len(page.Letters), limit)
		if all = append(all, page.Letters...); page.Done {
			return all
		}
		query.After = page.Next
	}
	require.Fail(r, "the pages do not end")
	return nil
}

// audited returns the entries of the set, in pages.
func (r *rig) audited(ctx context.Context, limit int) (all []roles.AuditEntry) {
	r.Helper()
	query := roles.AuditQuery{Limit: limit}
	for range 200 {
		page, err := r.set.Audited(ctx, query)
		require.NoError(r, err)
		require.LessOrEqual(r, len(page.Entries), limit)
		if all = append(all, page.Entries...); page.Done {
			return all
		}
		query.After = page.Next
	}
	require.Fail(r, "the pages do not end")
	return nil
}

func TestSet_Workbench(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c"}

	t.Run("DeadLetters pages through all members in the order of ids, each with its store", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, names, nil)
		for i, name := range names {
			r.append(name, 2+i)
		}
		r.die(9)
		want := r.letters(1000)
		require.Len(t, want, 9)
		require.True(t, slices.IsSortedFunc(want, func(a, b roles.DeadLetter) int { return slices.Compare(a.Record.ID[:], b.Record.ID[:]) }))
		for _, letter := range want {
			require.Equal(t, letter.Record.TenantID, letter.Record.Store)
		}
		for _, limit := range []int{1, 2, 4} {
			require.Equal(t, want, r.letters(limit))
		}
	})

	t.Run("Edit and Skip find the member of the record", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, names, nil)
		for _, name := range names {
			r.append(name, 1)
		}
		r.die(3)
		for _, letter := range r.letters(10) {
			edit := roles.Edit{Seen: storekit.FingerprintOf(letter.Record), Payload: []byte("new")}
			after, err := r.set.Edit(t.Context(), letter.Record.ID, edit)
			require.NoError(t, err)
			require.Equal(t, letter.Record.Store, after.Store)
			require.Equal(t, "new", string(after.Payload))
			skipped, err := r.set.Skip(t.Context(), letter.Record.ID)
			require.NoError(t, err)
			require.True(t, skipped.Done)
		}
		require.Empty(t, r.letters(10))
		_, err := r.set.Skip(t.Context(), outmill.NewWorkItemID())
		require.ErrorIs(t, err, outmill.ErrNotFound)
	})

	t.Run("WithTenant names the member of Edit and Skip", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, names, nil)
		r.append("a", 1)
		r.die(1)
		letter := r.letters(10)[0]
		elsewhere := tenants.WithTenant(t.Context(), "b")
		_, err := r.set.Skip(elsewhere, letter.Record.ID)
		require.ErrorIs(t, err, outmill.ErrNotFound)
		_, err = r.set.Edit(elsewhere, letter.Record.ID, roles.Edit{Seen: storekit.FingerprintOf(letter.Record), Payload: []byte("new")})
		require.ErrorIs(t, err, outmill.ErrNotFound)
		require.Len(t, r.letters(10), 1)
	})
}

func TestSet_WorkbenchOnMongoDB(t *testing.T) {
	t.Parallel()

	t.Run("a set with a member on MongoDB lists, edits, skips, requeues and audits its dead records", func(t *testing.T) {
		t.Parallel()
		db := mongotest.Database(t)
		store, err := mongo.New(db.Client(), mongo.Config{Database: db.Name(), Name: "m"}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		require.NoError(t, store.Ensure(t.Context()))
		r := newRig(t, nil, func(c *tenants.Config) {
			c.Discovery = tenants.Static{{Key: "s", Store: newSpy(t, "s")}, {Key: "m", Store: store}}
		})
		for _, name := range []string{"s", "m"} {
			r.append(name, 2)
		}
		r.die(4)
		letters := r.letters(10)
		require.Len(t, letters, 4)
		members := map[string]int{}
		for _, letter := range letters {
			id := letter.Record.ID
			require.Equal(t, letter.Record.TenantID, letter.Record.Store)
			edit := roles.Edit{Seen: storekit.FingerprintOf(letter.Record), Payload: []byte("new")}
			after, err := r.set.Edit(t.Context(), id, edit)
			require.NoError(t, err)
			require.Equal(t, "new", string(after.Payload))
			if members[letter.Record.Store]++; members[letter.Record.Store] == 1 {
				skipped, err := r.set.Skip(t.Context(), id)
				require.NoError(t, err)
				require.True(t, skipped.Done)
				continue
			}
			n, err := r.set.Requeue(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}
		require.Equal(t, map[string]int{"s": 2, "m": 2}, members)
		require.Empty(t, r.letters(10))
		noted := map[string]int{}
		for _, limit := range []int{3, 100} {
			clear(noted)
			for _, entry := range r.audited(t.Context(), limit) {
				noted[entry.Store+" "+string(entry.Action)]++
			}
			require.Equal(t, map[string]int{"s edit": 2, "s skip": 1, "s requeue": 1, "m edit": 2, "m skip": 1, "m requeue": 1}, noted)
		}
	})
}

func TestSet_Audit(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c"}

	t.Run("Audited pages through the entries of all members, the newest first, each once and with its store", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, names, nil)
		var order []string
		for i := range 9 {
			name := names[i*2%3]
			rec := r.append(name, 1)[0]
			_, err := r.set.Delete(storekit.WithActor(t.Context(), "ann"), rec.ID)
			require.NoError(t, err)
			order = append([]string{name}, order...)
		}
		want := r.audited(t.Context(), 100)
		require.Len(t, want, 9)
		for i, entry := range want {
			require.Equal(t, order[i], entry.Store)
			require.Equal(t, "ann", entry.Actor)
		}
		for _, limit := range []int{1, 2, 5, 9} {
			require.Equal(t, want, r.audited(t.Context(), limit), limit)
		}
		require.Len(t, r.audited(tenants.WithTenant(t.Context(), "b"), 2), 3)
	})

	t.Run("Audited returns the entries of the others when a member fails, and asks it again later", func(t *testing.T) {
		t.Parallel()
		ill := newSpy(t, "b")
		r := newRig(t, nil, func(c *tenants.Config) {
			c.Discovery = tenants.Static{{Key: "a", Store: newSpy(t, "a")}, {Key: "b", Store: &mute{ill}}, {Key: "c", Store: newSpy(t, "c")}}
		})
		for _, name := range names {
			_, err := r.set.Delete(t.Context(), r.append(name, 1)[0].ID)
			require.NoError(t, err)
		}
		page, err := r.set.Audited(t.Context(), roles.AuditQuery{})
		var partial *storekit.PartialError
		require.ErrorAs(t, err, &partial)
		require.ErrorIs(t, err, errAway)
		require.Len(t, page.Entries, 2)
		require.False(t, page.Done)
	})

	t.Run("a place that is not of a set is refused", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, names, nil)
		_, err := r.set.Audited(t.Context(), roles.AuditQuery{After: "12"})
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	})
}
