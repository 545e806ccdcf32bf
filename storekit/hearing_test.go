package storekit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/storekit"
)

// connections are those of a Hearing: each is the context of one, and what breaks gets ends it.
type connections struct {
	begun  chan context.Context
	breaks chan bool
}

func hearing() (*storekit.Hearing, connections) {
	c := connections{make(chan context.Context), make(chan bool)}
	return storekit.NewHearing(func(ctx context.Context) bool {
		select {
		case c.begun <- ctx:
		case <-ctx.Done():
			return true
		}
		select {
		case worked := <-c.breaks:
			return worked
		case <-ctx.Done():
			return true
		}
	}), c
}

func TestHearing(t *testing.T) {
	t.Parallel()

	t.Run("it says whether a connection is open, and a number that rises with all that it reports", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h, c := hearing()
			defer h.Close()
			none, hears := h.Heard()
			require.False(t, hears)
			h.Hear(t.Context())
			<-c.begun
			h.Begin()
			begun, hears := h.Heard()
			require.True(t, hears)
			require.Greater(t, begun, none)
			h.Note()
			reported, _ := h.Heard()
			require.Greater(t, reported, begun)
			c.breaks <- true
			synctest.Wait()
			broken, hears := h.Heard()
			require.False(t, hears)
			require.Greater(t, broken, reported)
			<-c.begun
		})
	})

	t.Run("readers share a connection, which ends with the last of them", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h, c := hearing()
			defer h.Close()
			first, leave := context.WithCancel(t.Context())
			second, leaveToo := context.WithCancel(t.Context())
			h.Hear(first)
			h.Hear(second)
			connection := <-c.begun
			leave()
			synctest.Wait()
			require.NoError(t, connection.Err())
			leaveToo()
			synctest.Wait()
			require.Error(t, connection.Err())
			h.Hear(t.Context())
			require.NoError(t, (<-c.begun).Err(), "a later reader has one again")
		})
	})

	t.Run("a connection that breaks comes again, after a pause that grows while none works", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h, c := hearing()
			defer h.Close()
			h.Hear(t.Context())
			<-c.begun
			pause := func(worked bool) time.Duration {
				began := time.Now()
				c.breaks <- worked
				<-c.begun
				return time.Since(began)
			}
			require.Less(t, pause(false), time.Second)
			for range 10 {
				pause(false)
			}
			require.Greater(t, pause(false), 10*time.Second)
			require.Less(t, pause(true), time.Second)
		})
	})

	t.Run("Close ends the connection, and nobody hears any more", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h, c := hearing()
			var e ear
			h.Listen(t.Context(), e.hear)
			h.Hear(t.Context())
			connection := <-c.begun
			h.Close()
			require.Error(t, connection.Err())
			h.Hear(t.Context())
			h.Notify()
			synctest.Wait()
			require.Empty(t, e.heard)
		})
	})
}
