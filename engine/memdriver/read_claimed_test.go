package memdriver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/memdriver"
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
