package janitor_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/janitor"
	"github.com/outmill/outmill/sqlite"
)

// asked is a store that counts the questions whether it is idle, and the calls of a chore.
type asked struct {
	*sqlite.Store
	fails         error
	asked, chores atomic.Int32
}

func (s *asked) AreIdle(ctx context.Context, stores []any) ([]bool, error) {
	s.asked.Add(1)
	idle, err := s.Store.AreIdle(ctx, stores)
	return idle, errors.Join(err, s.fails)
}

func (s *asked) ReapExpired(ctx context.Context, limit int) (int, error) {
	s.chores.Add(1)
	return s.Store.ReapExpired(ctx, limit)
}

func TestJanitor_Idle(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fails  error
		waits  bool
		chores int32
	}{
		"a store that is idle gets no chores":                            {},
		"a store with a record that waits gets its chores":               {waits: true, chores: 1},
		"a store that cannot say whether it is idle gets its chores too": {fails: errors.New("cannot say"), chores: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if c.waits {
				r.backlog(1)
			}
			store := &asked{Store: r.store, fails: c.fails}
			_, err := newJanitor(t, store, janitor.Config{}).RunOnce(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 1, store.asked.Load())
			require.Equal(t, c.chores, store.chores.Load())
		})
	}
}
