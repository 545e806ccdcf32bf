package driver_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/driver"
)

// Lock finds a row whatever becomes of it between its statements, unless it is gone.
func TestLog_LockOfARowThatOthersMove(t *testing.T) {
	t.Parallel()
	claim := func(t *testing.T, s logged) []*outmill.Record {
		found, err := s.Claim(t.Context(), outmill.ClaimRequest{
			Group: "first", Owner: outmill.NewOwnerToken(), Limit: 10, Lease: time.Minute,
		})
		require.NoError(t, err)
		require.Len(t, found, 1)
		return found
	}
	ack := func(t *testing.T, s logged, claimed []*outmill.Record) {
		require.NoError(t, s.Ack(t.Context(), "", []outmill.Lease{claimed[0].Lease()}))
	}
	for name, c := range map[string]struct {
		statement string
		claims    bool
		happens   func(t *testing.T, s logged, claimed []*outmill.Record)
		stage     driver.Stage
	}{
		"an ack before the search of the log": {"log_find", true, ack, driver.Processed},
		"an ack before the move":              {"log_change_leased", true, ack, driver.Processed},
		"a claim before the move": {"log_change_unread", false,
			func(t *testing.T, s logged, _ []*outmill.Record) { claim(t, s) }, driver.Leased},
		"a claim and its ack before the move": {"log_change_unread", false,
			func(t *testing.T, s logged, _ []*outmill.Record) { ack(t, s, claim(t, s)) }, driver.Processed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openLoggedWith(t, engine.Config{Retain: time.Hour})
			r := &outmill.Record{Topic: "orders", Payload: []byte("x")}
			require.NoError(t, s.Append(t.Context(), r))
			var claimed []*outmill.Record
			if c.claims {
				claimed = claim(t, s)
			}
			happened := false
			ctx := context.WithValue(t.Context(), beforeKey{}, &before{statement: c.statement, happens: func() {
				c.happens(t, s, claimed)
				happened = true
			}})
			// Another process, which does not remember the lease.
			other := s.another(t)
			require.NoError(t, other.Update(ctx, driver.Begin{}, func(tx driver.Tx) error {
				row, found, err := tx.Lock(ctx, r.ID)
				require.True(t, found)
				require.Equal(t, c.stage, row.Stage)
				return err
			}))
			require.True(t, happened)
		})
	}
}
