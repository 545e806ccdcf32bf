package stall

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func env(seed, share string) func(string) string {
	return func(name string) string { return map[string]string{SeedVariable: seed, ShareVariable: share}[name] }
}

func chosenOf(p *places) (list []uint32) {
	for place := range uint32(10_000) {
		if p.has(place * 2_654_435_761) {
			list = append(list, place)
		}
	}
	return list
}

func TestPlaces(t *testing.T) {
	t.Parallel()

	t.Run("are about the share that is asked for, the same for one seed and others for another", func(t *testing.T) {
		t.Parallel()
		seven := chosenOf(newPlaces(env("7", "20")))
		require.InDelta(t, 200, len(seven), 60)
		require.Equal(t, seven, chosenOf(newPlaces(env("7", "20"))))
		require.NotEqual(t, seven, chosenOf(newPlaces(env("8", "20"))))
		require.Len(t, chosenOf(newPlaces(env("7", "1000"))), 10_000)
	})

	t.Run("are none without a seed", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, chosenOf(newPlaces(env("", "1000"))))
	})

	t.Run("have a bounded number of pauses", func(t *testing.T) {
		t.Parallel()
		p, n := newPlaces(env("7", "1000")), 0
		for range 1000 {
			if p.pauses(1) {
				n++
			}
		}
		require.Equal(t, pauses, n)
		for range 1000 {
			if p.pauses(2) {
				return
			}
		}
		require.Fail(t, "another place has pauses of its own")
	})

	t.Run("leave the clock of a bubble alone", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			pause()
			require.Zero(t, time.Since(began))
		})
	})
}
