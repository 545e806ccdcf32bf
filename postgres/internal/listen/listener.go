package listen

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/postgres/internal/conns"
	"github.com/outmill/outmill/storekit"
)

// Stores that share a pool listen on one connection, so that a thousand schemas of one database
// take no more connections than one. The first Wake opens it, and it is closed when none of these
// stores listens any more.

// listeners are the listening connections of this process.
var listeners listenerRegistry

type listenerRegistry struct {
	mu    sync.Mutex
	known map[listenerOf]*listener
}

// listenerOf says which stores share a connection: those of a pool, with the same ListenURL.
type listenerOf struct {
	pool any
	url  string
}

func (n *Notices) listenerOf() listenerOf { return listenerOf{n.config.Conns.Pool(), n.config.URL} }

// of returns the connection on which the store listens; nil if it does not.
func (r *listenerRegistry) of(n *Notices) *listener {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.known[n.listenerOf()]
	if l == nil || !l.has(n) {
		return nil
	}
	return l
}

// join has the connection listen for the store.
func (r *listenerRegistry) join(n *Notices) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.known[n.listenerOf()]
	if l == nil {
		l = newListener(n)
		if r.known == nil {
			r.known = map[listenerOf]*listener{}
		}
		r.known[n.listenerOf()] = l
		l.work.Go(l.keepListening)
	}
	l.add(n)
}

// leave ends the connection after its last store has left, and waits for its end.
func (r *listenerRegistry) leave(n *Notices) {
	if l := r.remove(n); l != nil {
		l.end()
		l.work.Wait()
	}
}

// remove returns the store's connection if the store was its last user.
func (r *listenerRegistry) remove(n *Notices) *listener {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.known[n.listenerOf()]
	if l == nil || !l.remove(n) {
		return nil
	}
	delete(r.known, n.listenerOf())
	return l
}

// channelsAtOnce is how many channels one round trip adds.
const channelsAtOnce = 100

// listener is a connection that listens on the channels of stores.
type listener struct {
	settings conns.Settings
	logger   *storekit.Log
	// heartbeat is the time after which a silent connection is asked whether it still works.
	heartbeat time.Duration
	// calls knows whether the connection fails.
	calls storekit.CallLog

	ctx  context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu sync.Mutex
	// users are the stores by their channel. changed are the channels for which the connection
	// is to begin or to end listening. interrupt ends its wait for notifications.
	users     map[string]map[*Notices]bool
	changed   map[string]bool
	interrupt context.CancelFunc
}

func newListener(n *Notices) *listener {
	l := &listener{
		settings: n.config.Settings, logger: n.config.Logger, heartbeat: n.heartbeat,
		users: map[string]map[*Notices]bool{}, changed: map[string]bool{}, interrupt: func() {},
	}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

func (l *listener) add(n *Notices) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users[n.config.Channel] == nil {
		l.users[n.config.Channel] = map[*Notices]bool{}
	}
	l.users[n.config.Channel][n] = true
	l.change(n.config.Channel)
}

func (l *listener) has(n *Notices) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.users[n.config.Channel][n]
}

// remove reports whether no user is left.
func (l *listener) remove(n *Notices) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.users[n.config.Channel], n)
	if len(l.users[n.config.Channel]) == 0 {
		delete(l.users, n.config.Channel)
		l.change(n.config.Channel)
	}
	return len(l.users) == 0
}

// change has the connection look at the channel. The caller holds the lock.
func (l *listener) change(channel string) {
	l.changed[channel] = true
	l.interrupt()
}

// changes returns the channels to look at, and a context for the wait after that.
func (l *listener) changes() (changed []string, wait context.Context, stop context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed = slices.Sorted(maps.Keys(l.changed))
	clear(l.changed)
	wait, stop = context.WithCancel(l.ctx)
	l.interrupt = stop
	return changed, wait, stop
}

// everything has a new connection look at all channels.
func (l *listener) everything() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.changed)
	for channel := range l.users {
		l.changed[channel] = true
	}
}

// usersOf returns the stores of a channel.
func (l *listener) usersOf(channel string) []*Notices {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.users[channel]))
}

func (l *listener) notify(channel string, topics ...string) {
	for _, n := range l.usersOf(channel) {
		n.config.Notify(topics...)
	}
}

func (l *listener) keepListening() {
	waits := storekit.NewWaits(firstReconnect, lastReconnect)
	for l.ctx.Err() == nil {
		began := time.Now()
		err := l.hear()
		if l.ctx.Err() != nil {
			return
		}
		l.calls.Note(l.ctx, storekit.CallListen, "", time.Time{}, err)
		l.logger.Error("Not listening for notifications; readers poll until it works again", err, nil)
		if time.Since(began) > lastReconnect {
			waits.Reset()
		}
		_ = waits.Wait(l.ctx)
	}
}

// hear listens until the connection breaks.
func (l *listener) hear() error {
	conn, err := l.connect()
	if err != nil {
		return err
	}
	defer conns.HangUp(l.ctx, conn)
	var writes bool
	if err := l.stillWrites(conn, &writes); err != nil {
		return err
	}
	l.everything()
	for l.ctx.Err() == nil {
		changed, wait, stop := l.changes()
		err := l.listenTo(conn, changed)
		if err == nil {
			l.calls.Note(l.ctx, storekit.CallListen, "", time.Time{}, nil)
			err = l.hearUntil(wait, conn, &writes)
		}
		stop()
		if err != nil {
			return err
		}
	}
	return l.ctx.Err()
}

// listenTo has the connection listen on the channels that have users, and on no others.
func (l *listener) listenTo(conn *pgx.Conn, channels []string) error {
	for some := range slices.Chunk(channels, channelsAtOnce) {
		statements := make([]string, len(some))
		for i, channel := range some {
			verb := "LISTEN "
			if len(l.usersOf(channel)) == 0 {
				verb = "UNLISTEN "
			}
			statements[i] = verb + pgx.Identifier{channel}.Sanitize()
		}
		if err := l.ask(conn, strings.Join(statements, "; ")); err != nil {
			return err
		}
		for _, channel := range some {
			// Records may have been committed before the connection listened.
			l.notify(channel)
		}
	}
	return nil
}

// hearUntil passes notifications on until wait ends. It asks a connection that is silent for too
// long whether it still works.
func (l *listener) hearUntil(wait context.Context, conn *pgx.Conn, writes *bool) error {
	for {
		notification, err := l.next(wait, conn)
		switch {
		case err == nil:
			l.notify(notification.Channel, topicsOf(notification.Payload)...)
		case conn.IsClosed():
			return err
		case wait.Err() != nil:
			return nil //nolint:nilerr // the wait was interrupted
		default:
			if err := l.stillWrites(conn, writes); err != nil {
				return err
			}
		}
	}
}
