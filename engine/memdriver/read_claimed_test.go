package memdriver_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/memdriver"
	"github.com/outmill/outmill/storekit"
)

// reads is a driver that has before run before each read of contents after a claim.
type reads struct {
	memdriver.Driver
	before func(rows []driver.Row) error
}

func (d reads) Read(ctx context.Context, rows []driver.Row, want driver.Want) ([]driver.Content, error) {
	if err := d.before(rows); err != nil {
		return nil, err
	}
	return d.Driver.Read(ctx, rows, want)
}

// readRace is a race whose claims read at most 10,000 bytes at a time.
func readRace(t *testing.T, before func(r *race, rows []driver.Row) error) *race {
	r := newRace(t)
	d := reads{Driver: memdriver.Driver{Database: r.store.db}, before: func(rows []driver.Row) error { return before(r, rows) }}
	r.store = store{engine.New(d, engine.Config{Name: "memory", ReadBytes: 10_000}), r.store.db}
	r.register(t.Context())
	for _, id := range []string{"m1", "m2", "m3", "m4"} {
		one := rec(id, "")
		one.Payload = make([]byte, 4000)
		r.append(t.Context(), one)
	}
	return r
}

func TestClaim_ReadsAfterTheCommitInPieces(t *testing.T) {
	t.Parallel()
	var pieces []int
	r := readRace(t, func(r *race, rows []driver.Row) error {
		pieces = append(pieces, len(rows))
		leased, err := r.serial.List(r.Context(), outmill.ListQuery{Status: outmill.StatusLeased})
		require.NoError(r, err)
		require.Len(r, leased, 4, "the lease is stored before the content is read")
		return nil
	})
	require.Equal(t, []string{"m1", "m2", "m3", "m4"}, ids(r.claim(t.Context(), a, 10)))
	require.Equal(t, []int{2, 2}, pieces)
}

func TestClaim_ReturnsWhatItCouldRead(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk is broken")
	for good, want := range [][]string{nil, {"m1", "m2"}} {
		n := 0
		r := readRace(t, func(*race, []driver.Row) error {
			if n++; n > good {
				return broken
			}
			return nil
		})
		req := outmill.ClaimRequest{Owner: a, Group: group, Topics: outmill.Topics{Include: []string{topic}}, Limit: 10, Lease: time.Minute}
		ctx, cancel := context.WithCancel(t.Context())
		found, err := r.store.Claim(ctx, req)
		cancel()
		if want == nil {
			require.ErrorIs(t, err, broken)
		} else {
			require.NoError(t, err)
		}
		require.Equal(t, want, ids(found))
		pending, err := r.serial.List(t.Context(), outmill.ListQuery{Status: outmill.StatusPending})
		require.NoError(t, err)
		require.Len(t, pending, 4-len(want), "the others are given back")
		for _, p := range pending {
			require.Zero(t, p.Attempts+p.Expiries)
		}
	}
}

// A process that ends while it reads leaves its leases behind.
func TestClaim_EndsWithWhatNobodyCanRead(t *testing.T) {
	t.Parallel()
	died := 0
	r := readRace(t, func(_ *race, rows []driver.Row) error {
		for _, row := range rows {
			if row.Claims > 0 && row.Size > 10_000 {
				died++
				runtime.Goexit()
			}
		}
		return nil
	})
	require.NoError(t, r.store.Ack(t.Context(), "", leases(r.claim(t.Context(), a, 10)...)))
	large := rec("large", "")
	large.Payload = make([]byte, 20_000)
	r.append(t.Context(), large)
	r.append(t.Context(), rec("m5", ""), rec("m6", ""))
	req := outmill.ClaimRequest{Owner: b, Group: group, Topics: outmill.Topics{Include: []string{topic}}, Limit: 10, MaxBytes: 10_000,
		Lease: time.Minute, MaxAttempts: 2}
	// claims as a process that may die.
	claims := func() (found []*outmill.Record) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			var err error
			if found, err = r.store.Claim(t.Context(), req); err == nil {
				err = r.store.Ack(t.Context(), "", leases(found...))
			}
			if err != nil {
				t.Error(err)
			}
		}()
		<-done
		return found
	}
	require.Empty(t, claims())
	require.Equal(t, []string{"m5", "m6"}, ids(claims()), "while the lease of the large one is valid")
	for range 10 {
		r.store.db.Elapse(2 * time.Minute)
		require.Empty(t, claims())
	}
	require.Equal(t, outmill.SuspectExpiries+req.MaxAttempts, died)
	got, err := r.serial.Get(t.Context(), large.ID)
	require.NoError(t, err)
	require.Equal(t, outmill.StatusDead, got.Status)
	require.Equal(t, storekit.SuspectError(died), got.LastError)
	require.Equal(t, req.MaxAttempts, got.Attempts)
}
