package driver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	contract "github.com/outmill/outmill/engine/driver"
)

// Another process changes the registrations before each round trip of a call, or waits for the call's transaction.
func TestCalls_WhileRegistrationsChange(t *testing.T) {
	t.Parallel()
	claim := func(ctx context.Context, s logged, order outmill.Order) ([]*outmill.Record, error) {
		return s.Claim(ctx, outmill.ClaimRequest{
			Owner: outmill.NewOwnerToken(), Group: "first", Limit: 1, Lease: time.Minute, Order: order,
		})
	}
	for name, call := range map[string]func(context.Context, logged) error{
		"a claim by key": func(ctx context.Context, s logged) error {
			got, err := claim(ctx, s, outmill.OrderKey)
			assert.Len(t, got, 1)
			return err
		},
		"a claim without an order": func(ctx context.Context, s logged) error {
			got, err := claim(ctx, s, outmill.OrderNone)
			assert.Len(t, got, 1)
			return err
		},
		"an append": func(ctx context.Context, s logged) error {
			return s.Append(ctx, &outmill.Record{Topic: "orders"})
		},
		"a list": func(ctx context.Context, s logged) error {
			got, err := s.List(ctx, outmill.ListQuery{Group: "first", Limit: 10})
			assert.Len(t, got, 2)
			return err
		},
		"a delete": func(ctx context.Context, s logged) error {
			all, err := s.List(t.Context(), outmill.ListQuery{Group: "first", Limit: 10})
			if err != nil {
				return err
			}
			n, err := s.Delete(ctx, all[0].ID, all[1].ID)
			assert.Equal(t, 2, n)
			return err
		},
		"a get": func(ctx context.Context, s logged) error {
			all, err := s.List(t.Context(), outmill.ListQuery{Group: "first", Limit: 10})
			if err != nil {
				return err
			}
			_, err = s.Get(ctx, all[0].ID)
			return err
		},
		"a change in the caller's transaction": raiseAttempts,
		"a drop": func(ctx context.Context, s logged) error {
			dropped, err := s.DropGroup(ctx, "first")
			assert.Equal(t, outmill.Dropped{Deleted: 2}, dropped)
			return err
		},
		"statistics": func(ctx context.Context, s logged) error {
			_, err := s.Stats(ctx, 0)
			return err
		},
	} {
		t.Run(name+" ends while registrations change all the time", func(t *testing.T) {
			t.Parallel()
			s := openLogged(t)
			require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: "orders", Key: "a"}, &outmill.Record{Topic: "orders", Key: "b"}))
			changes, changed := 0, make(chan error, 1)
			changed <- nil
			ctx := context.WithValue(t.Context(), tripKey{}, func() {
				select {
				case err := <-changed:
					assert.NoError(t, err)
				default:
					return // the last change waits for the call
				}
				changes++
				reg, ended := outmill.Registration{Group: fmt.Sprint("other-", changes)}, make(chan struct{})
				go func() {
					defer close(ended)
					changed <- s.RegisterGroup(t.Context(), reg)
				}()
				for {
					select {
					case <-ended:
						return
					case <-time.After(10 * time.Millisecond):
						if lockWaits(t, s.db) > 0 {
							return
						}
					}
				}
			})
			require.NoError(t, call(ctx, s))
			require.NoError(t, <-changed)
			require.Positive(t, changes)
		})
	}
}

// raiseAttempts changes the two records of the first group in a transaction of the caller.
func raiseAttempts(ctx context.Context, s logged) error {
	caller, err := s.db.Begin(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	err = s.driver.Within(ctx, caller, func(tx contract.Tx) error {
		rows, err := tx.Rows(ctx, contract.Search{By: contract.ByStage, Stage: contract.Ready, Line: s.ask("first").Line, Limit: 10})
		if err != nil {
			return err
		}
		if len(rows) != 2 {
			return fmt.Errorf("there are %d records", len(rows))
		}
		changes := make([]contract.Change, len(rows))
		for i, r := range rows {
			changes[i] = contract.Change{Was: r, Now: r}
			changes[i].Now.Attempts++
		}
		_, err = tx.Apply(ctx, contract.Changes{Rows: changes})
		return err
	})
	return errors.Join(err, caller.Commit(ctx))
}

// The server finds that the registrations have changed where a call has read rows of the log before, and moves them.
func TestWithin_RegistrationsChangeBeforeRowsMove(t *testing.T) {
	t.Parallel()
	s := openLogged(t)
	require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: "orders", Key: "a"}, &outmill.Record{Topic: "orders", Key: "b"}))
	changed := false
	ctx := context.WithValue(t.Context(), beforeKey{}, &before{statement: "log_change_unread", happens: func() {
		changed = true
		assert.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: "other"}))
	}})
	require.NoError(t, raiseAttempts(ctx, s))
	require.True(t, changed)
}
