package postgres

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// sqlNotify does not notify while PostgreSQL's queue of notifications is half full, because
// some listening session stays in a transaction: with a full queue the commit would fail.
// Readers then poll.
const sqlNotify = `SELECT pg_notify($1::text, $2::text) WHERE pg_notification_queue_usage() < 0.5`

const (
	firstReconnect = 100 * time.Millisecond
	lastReconnect  = 30 * time.Second
	// notifyWithin limits the time of a notification that is sent alone.
	notifyWithin = 5 * time.Second
	// maxPayload is a little less than PostgreSQL's limit of 8,000 bytes.
	maxPayload = 7900
)

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
		s.notices.listen(ctx)
	}
}

// HearsOthers is false if NotifyInterval turns notifications off. See roles.Waker.
func (s *Store) HearsOthers() bool { return !s.notices.off() }

// FailingCalls reports the listening connection while it cannot be opened. See storekit.FailingCaller.
func (s *Store) FailingCalls() []outmill.FailingCall {
	l := listeners.of(s)
	if l == nil {
		return nil
	}
	return l.calls.FailingCalls()
}

var _ storekit.FailingCaller = (*Store)(nil)

// wake wakes the readers of all topics, in this process and in others.
func (s *Store) wake() {
	s.notifier.Notify()
	s.notices.send()
}

// payloadOf returns a notification's text: the topics as JSON, or empty for any topic.
func payloadOf(topics []string) string {
	// Strings always marshal.
	text, _ := json.Marshal(topics)
	if len(topics) == 0 || len(text) > maxPayload {
		return ""
	}
	return string(text)
}

// topicsOf reads a notification's text. For an unknown text it returns no topics, which stands
// for any topic.
func topicsOf(payload string) []string {
	var topics []string
	if json.Unmarshal([]byte(payload), &topics) != nil {
		return nil
	}
	return topics
}

// notices sends notifications, and receives them by a listener. Not every append sends one. If one follows within
// the interval, a single notification at the interval's end covers it.
type notices struct {
	s        *Store
	channel  string
	interval time.Duration
	settings settings

	ctx  context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu   sync.Mutex
	last time.Time
	owed bool
	// wakes are the calls of Wake whose contexts have not ended.
	wakes int
	// topics are the topics of the next notification.
	topics storekit.TopicSet
}

func newNotices(s *Store, listen settings) *notices {
	n := &notices{
		s: s, interval: s.config.NotifyInterval, settings: listen,
		channel: s.sql.channel("notify"),
	}
	n.ctx, n.end = context.WithCancel(context.Background())
	return n
}

// settings are those of the connection that listens. The caller may change the configuration, and calls
// the hook, which may be nil, before it connects.
type settings func(ctx context.Context) (*pgx.ConnConfig, beforeConnect, error)

// beforeConnect is a pool's hook, for passwords that change, or for a budget of connections.
type beforeConnect func(context.Context, *pgx.ConnConfig) error

func listenSettings(conns connections, config Config) (settings, error) {
	if config.ListenURL == "" {
		return conns.settings, nil
	}
	parsed, err := pgx.ParseConfig(config.ListenURL)
	if err != nil {
		return nil, storekit.InvalidConfig("postgres.Config.ListenURL: %w", err)
	}
	return func(context.Context) (*pgx.ConnConfig, beforeConnect, error) { return parsed.Copy(), nil, nil }, nil
}

func (n *notices) off() bool { return n.interval < 0 }

// due reports whether a transaction notifies. If not, it schedules a later notification.
func (n *notices) due(topics []string) bool {
	if n.off() {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if now.Sub(n.last) >= n.interval {
		n.last = now
		return true
	}
	n.owe(n.interval-now.Sub(n.last), topics)
	return false
}

func (n *notices) step(topics []string) step {
	return step{template: sqlNotify, args: []any{n.channel, payloadOf(topics)}}
}

// send notifies by itself, of any topic.
func (n *notices) send() {
	if n.off() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.owe(max(0, n.interval-time.Since(n.last)), nil)
}

// owe schedules a notification, or adds the topics to one that is already scheduled.
func (n *notices) owe(after time.Duration, topics []string) {
	if len(topics) == 0 {
		topics = []string{""}
	}
	n.topics.Add(topics...)
	if n.owed || n.ctx.Err() != nil {
		return
	}
	n.owed = true
	n.work.Go(func() {
		n.waitTurn(after)
		// A scheduled notification is sent even if the store is closed.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(n.ctx), notifyWithin)
		defer cancel()
		// If the notification fails nothing is lost, because readers poll.
		_ = n.sendNow(ctx)
	})
}

// sendNow does not wait for the disk, because other sessions could not commit their
// notifications in that time.
func (n *notices) sendNow(ctx context.Context) error {
	topics := n.topics.Take()
	return n.s.in(ctx, sqlRelaxed, func(ctx context.Context, t *txn) error { return t.finish(ctx, n.step(topics)) })
}

// waitTurn returns when the interval since the last notification has passed, or when the store
// is closed.
func (n *notices) waitTurn(after time.Duration) {
	for {
		_ = storekit.Pause(n.ctx, after)
		n.mu.Lock()
		after = n.interval - time.Since(n.last)
		if after <= 0 || n.ctx.Err() != nil {
			n.owed, n.last = false, time.Now()
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
	}
}

// listen has the listener listen for the store until ctx ends.
func (n *notices) listen(ctx context.Context) {
	if n.off() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ctx.Err() != nil {
		return
	}
	n.wakes++
	if n.wakes == 1 {
		listeners.join(n)
	}
	context.AfterFunc(ctx, n.unlisten)
}

// unlisten ends one call of listen. It does not wait for the end of the connection.
func (n *notices) unlisten() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wakes--
	if n.wakes > 0 || n.ctx.Err() != nil {
		return
	}
	if last := listeners.remove(n); last != nil {
		last.end()
		n.work.Go(last.work.Wait)
	}
}

func (n *notices) close() {
	n.mu.Lock()
	n.end()
	listening := n.wakes > 0
	n.mu.Unlock()
	if listening {
		listeners.leave(n)
	}
	n.work.Wait()
}
