// Package listen has PostgreSQL stores tell each other of commits, with NOTIFY and LISTEN.
package listen

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres/internal/conns"
	"github.com/outmill/outmill/storekit"
)

const (
	firstReconnect = 100 * time.Millisecond
	lastReconnect  = 30 * time.Second
	// notifyWithin limits the time of a notification that is sent alone.
	notifyWithin = 5 * time.Second
	// maxPayload is a little less than PostgreSQL's limit of 8,000 bytes.
	maxPayload = 7900
)

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

// Config says how a store tells others of its commits, and hears of theirs.
type Config struct {
	// Channel is that of the store's tables.
	Channel string
	// Interval is the least time between two notifications of this store. A negative one turns notifications off.
	Interval time.Duration
	// Conns are the connections of the store. Stores that share a pool, and have the same URL, share one connection that listens.
	Conns *conns.Conns
	// URL is a connection string for the connection that listens; without one it has the settings of the pool. Settings are what
	// Conns.Beside says of it.
	URL      string
	Settings conns.Settings
	// Logger gets a line when the connection breaks.
	Logger *storekit.Log
	// Notify wakes the readers of this process.
	Notify func(topics ...string)
	// Send sends a notification in a transaction of its own.
	Send func(ctx context.Context, payload string) error
}

// Notices sends notifications, and receives them by a listener. Not every append sends one. If one follows within the interval, a
// single notification at the interval's end covers it. It is safe for concurrent use.
type Notices struct {
	config    Config
	heartbeat time.Duration

	ctx  context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu   sync.Mutex
	last time.Time
	owed bool
	// wakes are the calls of Listen whose contexts have not ended.
	wakes int
	// topics are the topics of the next notification.
	topics storekit.TopicSet
}

// New returns the notices of a store.
func New(config Config) *Notices {
	n := &Notices{config: config, heartbeat: heartbeat}
	n.ctx, n.end = context.WithCancel(context.Background())
	return n
}

// BeatEvery sets after which silence the connection that listens is asked whether it still works. It is for tests.
func (n *Notices) BeatEvery(d time.Duration) { n.heartbeat = d }

// FailingCalls reports the connection that listens while it cannot be opened. See storekit.FailingCaller.
func (n *Notices) FailingCalls() []outmill.FailingCall {
	l := listeners.of(n)
	if l == nil {
		return nil
	}
	return l.calls.FailingCalls()
}

// Budget is that of the connection that listens. See storekit.BudgetedListener.
func (n *Notices) Budget() *storekit.ConnectionBudget {
	if n.Off() {
		return nil
	}
	return n.config.Conns.Budget()
}

// Off reports whether notifications are turned off.
func (n *Notices) Off() bool { return n.config.Interval < 0 }

// Due reports whether a transaction that appends to the topics notifies, and with which text. If not, a later notification covers it.
func (n *Notices) Due(topics []string) (payload string, due bool) {
	if n.Off() {
		return "", false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if now.Sub(n.last) >= n.config.Interval {
		n.last = now
		return payloadOf(topics), true
	}
	n.owe(n.config.Interval-now.Sub(n.last), topics)
	return "", false
}

// Retract says that a notification which was due was not committed: the next transaction notifies.
func (n *Notices) Retract() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last = time.Time{}
}

// Wake wakes the readers of all topics, in this process and in others.
func (n *Notices) Wake() {
	n.config.Notify()
	n.Tell()
}

// Tell notifies the readers of other processes, of any topic.
func (n *Notices) Tell() {
	if n.Off() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.owe(max(0, n.config.Interval-time.Since(n.last)), nil)
}

// owe schedules a notification, or adds the topics to one that is already scheduled.
func (n *Notices) owe(after time.Duration, topics []string) {
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
		_ = n.config.Send(ctx, payloadOf(n.topics.Take()))
	})
}

// waitTurn returns when the interval since the last notification has passed, or when the store
// is closed.
func (n *Notices) waitTurn(after time.Duration) {
	for {
		_ = storekit.Pause(n.ctx, after)
		n.mu.Lock()
		after = n.config.Interval - time.Since(n.last)
		if after <= 0 || n.ctx.Err() != nil {
			n.owed, n.last = false, time.Now()
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
	}
}

// Listen has this process hear of the commits of others until ctx ends. It returns at once.
func (n *Notices) Listen(ctx context.Context) {
	if n.Off() {
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

// unlisten ends one call of Listen. It does not wait for the end of the connection.
func (n *Notices) unlisten() {
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

// Close ends the listening, sends what is owed, and waits for both.
func (n *Notices) Close() {
	n.mu.Lock()
	n.end()
	listening := n.wakes > 0
	n.mu.Unlock()
	if listening {
		listeners.leave(n)
	}
	n.work.Wait()
}
