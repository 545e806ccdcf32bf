package hearing_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/mongo/internal/hearing"
	"github.com/outmill/outmill/storekit"
)

// connections are those of a Hearing: each is the context of one, and what ends gets breaks it.
type connections struct {
	begun  chan connection
	breaks chan error
}

type connection struct {
	context.Context
	*hearing.Ears
}

func listener(of any) (hearing.Listener, connections) {
	c := connections{make(chan connection), make(chan error)}
	log := storekit.NewLog(nil, "store", nil)
	return hearing.Listener{Of: of, What: "connection", Log: log, Listen: func(ctx context.Context, to *hearing.Ears) error {
		select {
		case c.begun <- connection{ctx, to}:
		case <-ctx.Done():
			return nil
		}
		select {
		case err := <-c.breaks:
			return err
		case <-ctx.Done():
			return nil
		}
	}}, c
}

func alone() (*hearing.Hearing, connections) {
	l, c := listener(nil)
	return hearing.New(l), c
}

// ear keeps the topics for which it was woken.
type ear struct{ heard []string }

func (e *ear) hear(topic string) { e.heard = append(e.heard, topic) }

var errBroken = errors.New("it broke")

func TestHearing(t *testing.T) {
	t.Parallel()

	t.Run("it says whether a connection is open, and a number that rises with all that it reports", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h, c := alone()
			defer h.Close()
			none, hears := h.Heard()
			require.False(t, hears)
			h.Hear(t.Context())
			one := <-c.begun
			one.Begin()
			begun, hears := h.Heard()
			require.True(t, hears)
			require.Greater(t, begun, none)
			one.Report("", false)
			reported, _ := h.Heard()
			require.Greater(t, reported, begun)
			c.breaks <- errBroken
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
			h, c := alone()
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
			h, c := alone()
			defer h.Close()
			h.Hear(t.Context())
			one := <-c.begun
			pause := func(opens bool, lasts time.Duration) time.Duration {
				if opens {
					one.Begin()
				}
				time.Sleep(lasts)
				began := time.Now()
				c.breaks <- errBroken
				one = <-c.begun
				return time.Since(began)
			}
			require.Less(t, pause(false, 0), time.Second)
			for range 10 {
				pause(false, 0)
			}
			require.Greater(t, pause(false, 0), 10*time.Second)
			require.Greater(t, pause(true, time.Second), 10*time.Second, "one that breaks soon does not work")
			require.Less(t, pause(true, time.Minute), time.Second)
		})
	})

	t.Run("Close ends the connection, and nobody hears any more", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h, c := alone()
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

	t.Run("stores with one connection share it until the last has no reader, and each hears of its part", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			type shared struct{ *testing.T }
			l, c := listener(shared{t})
			var hearings [3]*hearing.Hearing
			var ears [3]ear
			for i := range hearings {
				l.Part = []string{"a", "b", "b"}[i]
				hearings[i] = hearing.New(l)
				hearings[i].Listen(t.Context(), ears[i].hear)
			}
			hearings[0].Hear(t.Context())
			hearings[1].Hear(t.Context())
			one := <-c.begun
			one.Begin()
			hearings[2].Hear(t.Context())
			for i := range ears {
				require.Equal(t, []string{""}, ears[i].heard, "what was committed before it heard is not reported")
				ears[i].heard = nil
			}
			one.Report("b", true, "orders")
			one.Report("a", false)
			one.Report("", true)
			require.Equal(t, []string{""}, ears[0].heard)
			require.Equal(t, []string{"orders", ""}, ears[1].heard)
			require.Equal(t, []string{"orders", ""}, ears[2].heard)
			hearings[0].Close()
			hearings[1].Close()
			require.NoError(t, one.Err())
			_, hears := hearings[0].Heard()
			require.False(t, hears)
			hearings[2].Close()
			require.Error(t, one.Err())
		})
	})

	t.Run("a connection that cannot be opened is a failing call until it works, or nobody needs it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h, c := alone()
			defer h.Close()
			reads, stop := context.WithCancel(t.Context())
			h.Hear(reads)
			<-c.begun
			require.Empty(t, h.FailingCalls())
			fails := func() connection {
				c.breaks <- errBroken
				next := <-c.begun
				require.Len(t, h.FailingCalls(), 1)
				require.Equal(t, storekit.CallListen, h.FailingCalls()[0].Call)
				require.Contains(t, h.FailingCalls()[0].Err, errBroken.Error())
				return next
			}
			fails().Begin()
			require.Empty(t, h.FailingCalls())
			fails()
			stop()
			synctest.Wait()
			require.Empty(t, h.FailingCalls())
		})
	})

	t.Run("a connection that the server does not allow is not tried again", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h, c := alone()
			defer h.Close()
			h.Hear(t.Context())
			<-c.begun
			c.breaks <- hearing.ErrNotAllowed
			select {
			case <-c.begun:
				require.Fail(t, "it was tried again")
			case <-time.After(time.Hour):
			}
			require.Len(t, h.FailingCalls(), 1)
		})
	})

	t.Run("stores have connections of their own if the server does not allow the one that they share", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			type shared struct{ *testing.T }
			l, c := listener(shared{t})
			own := func() (*hearing.Hearing, connections) {
				mine, c := listener(new(int))
				l.Else = &mine
				return hearing.New(l), c
			}
			first, ofFirst := own()
			second, ofSecond := own()
			first.Hear(t.Context())
			second.Hear(t.Context())
			<-c.begun
			c.breaks <- hearing.ErrNotAllowed
			(<-ofFirst.begun).Begin()
			(<-ofSecond.begun).Begin()
			third, ofThird := own()
			third.Hear(t.Context())
			<-ofThird.begun
			_, hears := first.Heard()
			require.True(t, hears)
			for _, h := range []*hearing.Hearing{first, second, third} {
				require.Empty(t, h.FailingCalls())
				h.Close()
			}
		})
	})
}
