package driver_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	contract "github.com/outmill/outmill/engine/driver"
)

// A search reads the log first and then the records, each at a moment of its own. Between the two another claim may move a row.
func TestRows_OfWhatMovesInBetween(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(r *contract.Row)
		// claims are those of the record at the end, and lost says that the search has seen only what the log had.
		claims int
		lost   bool
	}{
		"a row that has moved with its lease": {func(r *contract.Row) { r.Attempts = 1 }, 2, false},
		"a row that another owner has given back": {func(r *contract.Row) {
			r.Stage, r.Wake, r.Owner, r.Worker, r.Claims = contract.Ready, 0, "", "", 2
		}, 3, false},
		"a row that another owner has in work by now": {func(r *contract.Row) {
			r.Wake, r.Owner, r.Claims = r.Wake+contract.Time(time.Hour.Microseconds()), "other", 2
		}, 2, true},
	} {
		t.Run(name+" is found and leased at most once", func(t *testing.T) {
			t.Parallel()
			s := openLogged(t)
			line := contract.Line{Group: "first", Topic: "orders"}
			mover, err := s.db.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = mover.Rollback(context.WithoutCancel(t.Context())) }()
			other, search := s.another(t), contract.Search{By: contract.ByDue, Line: line, Limit: 10, Free: true}
			// A statement that is not prepared yet would wait for its table before those ahead of it begin.
			var begun, prepared sync.WaitGroup
			for range s.db.Config().MaxConns - 1 {
				begun.Add(1)
				prepared.Go(func() {
					assert.NoError(t, other.Update(t.Context(), contract.Begin{}, func(tx contract.Tx) error {
						begun.Done()
						begun.Wait()
						_, err := tx.Rows(t.Context(), search)
						return err
					}))
				})
			}
			prepared.Wait()

			require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: "orders"}))
			died, err := s.Claim(t.Context(), outmill.ClaimRequest{
				Owner: outmill.NewOwnerToken(), Group: "first", Limit: 1, Lease: time.Microsecond,
			})
			require.NoError(t, err)
			require.Len(t, died, 1)

			// A search that leases may not begin with the records, and may read the log.
			_, err = mover.Exec(t.Context(), `LOCK TABLE outmill.records IN EXCLUSIVE MODE`)
			require.NoError(t, err)
			require.NoError(t, s.driver.Within(t.Context(), mover, func(tx contract.Tx) error {
				if _, err := tx.Page(t.Context(), s.ask("first")); err != nil {
					return err
				}
				rows, err := tx.Rows(t.Context(), contract.Search{By: contract.ByStage, Stage: contract.Leased, Line: line, Limit: 10})
				require.NoError(t, err)
				require.Len(t, rows, 1)
				now := rows[0]
				c.change(&now)
				_, err = tx.Apply(t.Context(), contract.Changes{Rows: []contract.Change{{Was: rows[0], Now: now}}})
				return err
			}))

			var found []contract.Row
			var done contract.Applied
			ended := make(chan error, 1)
			go func() {
				ended <- other.Update(t.Context(), contract.Begin{}, func(tx contract.Tx) (err error) {
					if found, err = tx.Rows(t.Context(), search); err != nil {
						return err
					}
					changes := make([]contract.Change, len(found))
					for i, r := range found {
						changes[i] = contract.Change{Was: r, Now: r}
						changes[i].Now.Stage, changes[i].Now.Wake, changes[i].Now.Owner = contract.Leased, tx.State().Now+1e9, "last"
						changes[i].Now.Claims++
					}
					done, err = tx.Apply(t.Context(), contract.Changes{Rows: changes})
					return err
				})
			}()
			waitUntilWait(t, s.db, 1) // the search waits for the table of the records
			require.NoError(t, mover.Commit(t.Context()))
			require.NoError(t, <-ended)
			require.Len(t, found, 1)
			require.Equal(t, c.lost, done.Lost[found[0].ID])
			got, err := s.Get(t.Context(), died[0].ID)
			require.NoError(t, err)
			require.Equal(t, c.claims, got.Claims)
		})
	}
}
