package postgres

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres/internal/listen"
	"github.com/outmill/outmill/storekit"
)

// sqlNotify does not notify while PostgreSQL's queue of notifications is half full, because
// some listening session stays in a transaction: with a full queue the commit would fail.
// Readers then poll.
const sqlNotify = `SELECT pg_notify($1::text, $2::text) WHERE pg_notification_queue_usage() < 0.5`

func (s *Store) newNotices() (*listen.Notices, error) {
	settings, err := s.conns.Beside("postgres.Config.ListenURL", s.config.ListenURL)
	return listen.New(listen.Config{
		Channel: s.sql.channel("notify"), Interval: s.config.NotifyInterval, Conns: s.conns, URL: s.config.ListenURL, Settings: settings,
		Logger: s.logger, Notify: s.notifier.Notify, Send: s.notify,
	}), err
}

// Wake calls woken when records of a topic may have become claimable: see roles.Waker. It is
// called at once for this Store's own transactions. Commits of callers' transactions and of
// other processes arrive as notifications. Stores that share a pool, and have the same ListenURL,
// share one connection for them. The first Wake opens it, and it is closed when the contexts of all
// their Wakes have ended, or the last of them is closed. If the connection breaks, it is opened again.
func (s *Store) Wake(ctx context.Context, woken func(topic string)) {
	s.notifier.Listen(ctx, func(topic string) {
		s.rounds.hear(topic)
		woken(topic)
	})
	if s.notifier.HasListeners() {
		s.notices.Listen(ctx)
	}
}

// HearsOthers is false if NotifyInterval turns notifications off. See roles.Waker.
func (s *Store) HearsOthers() bool { return !s.notices.Off() }

// FailingCalls reports the listening connection while it cannot be opened. See storekit.FailingCaller.
func (s *Store) FailingCalls() []outmill.FailingCall { return s.notices.FailingCalls() }

// ListensWithin returns the budget of the connection that listens: see storekit.BudgetedListener.
func (s *Store) ListensWithin() *storekit.ConnectionBudget { return s.notices.Budget() }

var (
	_ storekit.FailingCaller    = (*Store)(nil)
	_ storekit.BudgetedListener = (*Store)(nil)
)

// wake wakes the readers of all topics, in this process and in others.
func (s *Store) wake() { s.notices.Wake() }

func (s *Store) notice(payload string) step {
	return step{template: sqlNotify, args: []any{s.sql.channel("notify"), payload}}
}

// notify does not wait for the disk, because other sessions could not commit their
// notifications in that time.
func (s *Store) notify(ctx context.Context, payload string) error {
	return s.in(ctx, sqlRelaxed, func(ctx context.Context, t *txn) error { return t.finish(ctx, s.notice(payload)) })
}
