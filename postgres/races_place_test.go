package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/storetest"
)

func TestStore_RacesPlace(t *testing.T) {
	t.Parallel()

	// With ten thousand due records, a claim may hand out only a part of them: those that it
	// would have handed out while fewer were due.
	t.Run("the delayed records of a key come as to a claim that was made earlier", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
		delayed := func(name string, after time.Duration) *outmill.Record {
			return &outmill.Record{Topic: "orders", Key: "key", MessageID: name, Delay: time.Hour + after}
		}
		records := []*outmill.Record{delayed("due third", 2*time.Second), delayed("due first", 0), delayed("due as third", 2*time.Second),
			delayed("due second", time.Second)}
		for _, one := range made("others", "other", 10_000) {
			one.Topic, one.Key, one.Delay = "orders", "other "+one.Key, time.Hour+time.Second
			records = append(records, one)
		}
		require.NoError(t, r.store.Append(t.Context(), records...))
		passTime(t, r.db, r.schema, 2*time.Hour)
		r.append("key", "appended then")
		owner := outmill.NewOwnerToken()
		var names []string
		for {
			found := claimed(t, r.store, claimOf(owner, 100, outmill.OrderKey, "orders"))
			if len(found) == 0 {
				break
			}
			for _, one := range found {
				if one.Key == "key" {
					names = append(names, one.MessageID)
				}
			}
			require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(found)))
		}
		require.Equal(t, []string{"due first", "due second", "due third", "due as third", "appended then"}, names)
	})

	t.Run("a key that one claim checks while its lease is settled leaves no record stuck", func(t *testing.T) {
		testenv.Long(t, "races with many turns")
		t.Parallel()
		aKeyIsSettledBeside(t, pool(t))
	})
}

// aKeyIsSettledBeside stops a claim at three points: between its page and what it takes of the log, before it writes the note of the key,
// and before it looks at the note once more.
func aKeyIsSettledBeside(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	for name, settle := range map[string]func(r *ring, first, second outmill.WorkItemID, lease outmill.Lease) error{
		"acked": func(r *ring, _, _ outmill.WorkItemID, lease outmill.Lease) error {
			return r.store.Ack(r.t.Context(), "", []outmill.Lease{lease})
		},
		"released": func(r *ring, _, _ outmill.WorkItemID, lease outmill.Lease) error {
			return r.store.Release(r.t.Context(), []outmill.Lease{lease})
		},
		"abandoned": func(r *ring, _, _ outmill.WorkItemID, lease outmill.Lease) error {
			return r.store.Abandon(r.t.Context(), []outmill.Settlement{{Lease: lease}})
		},
		"failed": func(r *ring, _, _ outmill.WorkItemID, lease outmill.Lease) error {
			return r.store.Fail(r.t.Context(), []outmill.Settlement{{Lease: lease}})
		},
		"deleted": func(r *ring, first, _ outmill.WorkItemID, _ outmill.Lease) error {
			_, err := r.store.Delete(r.t.Context(), first)
			return err
		},
		"held deleted": func(r *ring, _, second outmill.WorkItemID, lease outmill.Lease) error {
			_, err := r.store.Delete(r.t.Context(), second)
			return errors.Join(err, r.store.Ack(r.t.Context(), "", []outmill.Lease{lease}))
		},
	} {
		for at, statement := range map[string]string{"it takes": "log_take", "it notes": "put_notes", "it notes once more": "put_notes"} {
			t.Run(name+" before "+at, func(t *testing.T) {
				t.Parallel()
				r := newRingIn(t, db, storetest.Options{})
				records := r.append("key", "first", "second", "third")
				first := r.claim(outmill.NewOwnerToken(), 1)
				require.Len(t, first, 1)
				r.append("another", "another 1", "another 2")
				owner := outmill.NewOwnerToken()
				if at == "it notes once more" {
					require.Len(t, r.claim(owner, 1), 1, "second and third are held now")
					execute(t, r.db, r.sql(`UPDATE {notes} SET look_at = 1`))
				}
				stop := r.gates.beforeStatement(t, statement, 1)
				claim := async(func() ([]*outmill.Record, error) {
					return r.gated.Claim(t.Context(), claimOf(owner, 1, outmill.OrderKey, "orders"))
				})
				stop.wait(t)
				settled := async(func() (int, error) { return 0, settle(r, first[0].ID, records[1].ID, first[0].Lease()) })
				r.doneOrBlocked(func() bool { return len(settled) > 0 })
				stop.open()
				found := await(t, claim)
				await(t, settled)
				left := map[string]int{"acked": 2, "failed": 2, "deleted": 2, "released": 3, "abandoned": 3, "held deleted": 1}[name]
				require.Eventually(t, func() bool {
					found = append(found, r.claim(owner, 10)...)
					n := 0
					for _, one := range found {
						if one.Key == "key" {
							n++
						}
					}
					return n == left
				}, patience, 20*time.Millisecond)
			})
		}
	}
}
