package janitor_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/janitor"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
)

// silent is a store that never answers. A call that has no deadline fails the test.
type silent struct {
	*sqlite.Store
	t     *testing.T
	mu    sync.Mutex
	calls map[string]int
}

func (s *silent) wait(ctx context.Context, name string) error {
	deadline, ok := ctx.Deadline()
	if !ok || time.Until(deadline) > time.Minute {
		s.t.Errorf("%s has no deadline within a minute", name)
		return errors.New("no deadline")
	}
	s.mu.Lock()
	s.calls[name]++
	s.mu.Unlock()
	<-ctx.Done()
	return ctx.Err()
}

func (s *silent) Attach(func(context.Context)) (detach func(), err error) { return func() {}, nil }

func (s *silent) Name() string { return "silent" }

func (s *silent) IdleWith() (with, self any) { return s, s }

func (s *silent) AreIdle(ctx context.Context, _ []any) ([]bool, error) {
	return nil, s.wait(ctx, "idle")
}

func (s *silent) Maintain(ctx context.Context) (bool, error) { return false, s.wait(ctx, "maintain") }

func (s *silent) ReapExpired(ctx context.Context, _ int) (int, error) { return 0, s.wait(ctx, "reap") }

func (s *silent) ExpireDue(ctx context.Context, _ int) (int, error) { return 0, s.wait(ctx, "expire") }

func (s *silent) ExpireRegistrations(ctx context.Context, _ int) (registrations, records int, err error) {
	return 0, 0, s.wait(ctx, "registrations")
}

func (s *silent) DeleteProcessed(ctx context.Context, _ int) (int, error) {
	return 0, s.wait(ctx, "processed")
}

func (s *silent) DeleteJoins(ctx context.Context, _ int) (int, error) { return 0, s.wait(ctx, "joins") }

func (s *silent) DeleteNotes(ctx context.Context, _ int) (int, error) { return 0, s.wait(ctx, "notes") }

func (s *silent) DeleteOldSagas(ctx context.Context, _ int) (int, error) {
	return 0, s.wait(ctx, "sagas")
}

func (s *silent) DeleteOldAudit(ctx context.Context, _ int) (int, error) {
	return 0, s.wait(ctx, "audit")
}

func (s *silent) DeleteDedupKeys(ctx context.Context, _ int) (int, error) {
	return 0, s.wait(ctx, "dedup keys")
}

var (
	_ roles.Sagas     = (*silent)(nil)
	_ roles.Idle      = (*silent)(nil)
	_ outmill.Janitor = (*silent)(nil)
)

func TestJanitor_Silent(t *testing.T) {
	t.Parallel()
	t.Run("a store that does not answer keeps no call for longer than a minute", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			store := &silent{t: t, calls: map[string]int{}}
			j, err := janitor.New(store, janitor.Config{}, nil)
			require.NoError(t, err)
			_, err = j.RunOnce(t.Context())
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "the store did not answer within 1m0s")
			require.Len(t, store.calls, 11, "calls of the janitor: %v", store.calls)
			require.NoError(t, j.Close())
		})
	})
	t.Run("Run calls Maintain again after it got no answer", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			store := &silent{t: t, calls: map[string]int{}}
			j, err := janitor.New(store, janitor.Config{Interval: 24 * time.Hour}, nil)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			require.NoError(t, j.Run(ctx))
			require.Greater(t, store.calls["maintain"], 2)
		})
	})
}
