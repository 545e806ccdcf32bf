package worker

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storekit"
)

func TestFailing(t *testing.T) {
	t.Parallel()
	const soon = 20 * time.Second
	queueOf := func(t *testing.T) outmill.Queue {
		store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "outbox.db"), sqlite.Config{}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		return store
	}
	of := func(t *testing.T, queue outmill.Queue, group string) *Failing {
		f, leave := NewFailing(queue, group, "host:1")
		t.Cleanup(leave)
		return f
	}
	fail := func(t *testing.T, f *Failing, call string) {
		f.Note(t.Context(), call, "", time.Time{}, errors.New("away"))
	}
	works := func(t *testing.T, f *Failing, call string) { f.Note(t.Context(), call, "", time.Time{}, nil) }

	t.Run("a registration reports a call once when it has failed for the limit, and once when it works again", func(t *testing.T) {
		t.Parallel()
		f := of(t, queueOf(t), "billing")
		told := make(chan []outmill.FailingCall, 100)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		const limit = 50 * time.Millisecond
		go func() {
			defer close(ended)
			f.report(ctx, time.Millisecond, limit, func(context.Context) error { told <- f.ToRegister(); return nil })
		}()
		next := func() []outmill.FailingCall {
			select {
			case list := <-told:
				return list
			case <-time.After(soon):
				t.Fatal("no registration")
				return nil
			}
		}
		began := time.Now()
		fail(t, f, storekit.CallClaim)
		require.Len(t, next(), 1)
		require.GreaterOrEqual(t, time.Since(began), limit-time.Millisecond)
		fail(t, f, storekit.CallClaim)
		works(t, f, storekit.CallClaim)
		require.Empty(t, next())
		cancel()
		<-ended
		require.Empty(t, told, "nothing else has changed")
	})

	t.Run("workers that register under one name report the failing calls of all, until they leave", func(t *testing.T) {
		t.Parallel()
		queue := queueOf(t)
		one, other := of(t, queue, "billing"), of(t, queue, "others")
		two, leave := NewFailing(queue, "billing", "host:1")
		fail(t, two, storekit.CallExtend)
		require.Len(t, one.ToRegister(), 1)
		require.False(t, one.isOutdated(0))
		require.Len(t, two.ToRegister(), 1)
		require.Empty(t, other.ToRegister())
		require.Empty(t, one.FailingCalls(), "in the process they are told apart")
		leave()
		require.Empty(t, one.ToRegister())
	})

	t.Run("a registration does not report registrations, because it has arrived", func(t *testing.T) {
		t.Parallel()
		f := of(t, queueOf(t), "billing")
		fail(t, f, storekit.CallRegister)
		require.Len(t, f.FailingCalls(), 1)
		require.Empty(t, f.ToRegister())
		require.False(t, f.isOutdated(0))
	})

	t.Run("a registration reports no more calls than a store keeps", func(t *testing.T) {
		t.Parallel()
		f := of(t, queueOf(t), "billing")
		for i := range storekit.MaxFailing + 5 {
			f.Note(t.Context(), storekit.CallUpkeep, string(rune('a'+i)), time.Time{}, errors.New("away"))
		}
		require.Len(t, f.ToRegister(), storekit.MaxFailing)
		require.False(t, f.isOutdated(0))
	})
}
