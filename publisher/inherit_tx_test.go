package publisher_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/outmilltest"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
)

func TestPublisher_InheritTx(t *testing.T) {
	t.Parallel()

	t.Run("InheritTx commits and rolls back returned messages with the incoming message", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		incoming := newIncoming(t, store, "o1")
		unlucky := &unlucky{Publisher: newPublisher(t, store, requireTx), fail: 1}
		router := newRouter(t)
		router.AddMiddleware(publisher.InheritTx)
		router.AddHandler("bill", orders, incoming, "invoices", unlucky, func(m *message.Message) ([]*message.Message, error) {
			return []*message.Message{msg("invoice of " + m.UUID), msg("copy for " + m.UUID)}, nil
		})
		start(t, router)

		require.Equal(t, "o1 rolled back", receive(t, incoming.outcomes))
		require.Equal(t, 2, unlucky.published())
		outmilltest.RequireNotPublished(t, store, "invoices")
		require.Equal(t, 1, count(t, store, "SELECT count(*) FROM incoming"))

		close(incoming.goOn)
		require.Equal(t, "o1 committed", receive(t, incoming.outcomes))
		requirePublished(t, store, "invoices", "invoice of o1", "copy for o1")
		require.Zero(t, count(t, store, "SELECT count(*) FROM incoming"))
	})

	t.Run("Without InheritTx returned messages carry no transaction", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		incoming := newIncoming(t, store, "o1")
		refused := make(chan error, 100)
		router := newRouter(t)
		router.AddHandler("bill", orders, incoming, "invoices", reporting{newPublisher(t, store, requireTx), refused},
			func(m *message.Message) ([]*message.Message, error) {
				return []*message.Message{msg("invoice of " + m.UUID)}, nil
			})
		start(t, router)
		require.ErrorIs(t, receive(t, refused), outmill.ErrNoTx)
	})

	t.Run("InheritTx", func(t *testing.T) {
		t.Parallel()
		type other struct{}

		run := func(incoming *message.Message, produced []*message.Message, err error) ([]*message.Message, error) {
			return publisher.InheritTx(func(*message.Message) ([]*message.Message, error) { return produced, err })(incoming)
		}

		t.Run("keeps the own values of a returned message", func(t *testing.T) {
			t.Parallel()
			ctx := context.WithValue(context.WithValue(t.Context(), ctxKey{}, "incoming"), other{}, "incoming")
			out := msg("out", in(context.WithValue(t.Context(), ctxKey{}, "own")))
			_, err := run(msg("in", in(ctx)), []*message.Message{out}, nil)
			require.NoError(t, err)
			require.Equal(t, "own", out.Context().Value(ctxKey{}))
			require.Equal(t, "incoming", out.Context().Value(other{}))
		})

		t.Run("lends no end and no deadline of the incoming message", func(t *testing.T) {
			t.Parallel()
			bare := msg("bare")
			_, err := run(msg("in", in(cancelled(t.Context()))), []*message.Message{bare}, nil)
			require.NoError(t, err)
			require.NoError(t, bare.Context().Err())
			require.NoError(t, context.Cause(bare.Context()))

			own, cancel := context.WithCancelCause(context.Background())
			out := msg("out", in(own))
			_, err = run(msg("in", in(overdue(t, t.Context()))), []*message.Message{out}, nil)
			require.NoError(t, err)
			_, bounded := out.Context().Deadline()
			require.False(t, bounded)
			require.NoError(t, out.Context().Err())
			require.NoError(t, context.Cause(out.Context()))
			derived, stop := context.WithCancel(out.Context())
			defer stop()
			require.NoError(t, derived.Err())
			cancel(errNoStock)
			require.ErrorIs(t, out.Context().Err(), context.Canceled)
			receive(t, derived.Done())
			require.ErrorIs(t, context.Cause(derived), errNoStock)
		})

		t.Run("leaves an incoming message that is passed on, nothing and the error as they are", func(t *testing.T) {
			t.Parallel()
			incoming := msg("in", in(context.WithValue(t.Context(), ctxKey{}, "incoming")))
			ctx := incoming.Context()
			produced, err := run(incoming, []*message.Message{incoming, nil}, errNoStock)
			require.Equal(t, []*message.Message{incoming, nil}, produced)
			require.ErrorIs(t, err, errNoStock)
			require.Equal(t, ctx, incoming.Context())
			produced, err = run(incoming, nil, nil)
			require.Empty(t, produced)
			require.NoError(t, err)
		})
	})
}

// incoming is a subscriber like that of watermill-sql: one transaction for each message,
// committed on an ack and rolled back on a nack.
type incoming struct {
	store    *sqlite.Store
	outcomes chan string
	// goOn lets it continue after a rollback.
	goOn chan struct{}
	done chan struct{}
	once sync.Once
}

func newIncoming(t *testing.T, store *sqlite.Store, names ...string) *incoming {
	t.Helper()
	execute(t, store.DB(), "CREATE TABLE incoming (id TEXT PRIMARY KEY)")
	for _, name := range names {
		execute(t, store.DB(), "INSERT INTO incoming VALUES (?)", name)
	}
	return &incoming{store: store, outcomes: make(chan string, 10), goOn: make(chan struct{}), done: make(chan struct{})}
}

func (i *incoming) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		for {
			found, err := i.deliver(ctx, out)
			if err != nil {
				i.outcomes <- err.Error()
				return
			}
			if found {
				continue
			}
			select {
			case <-i.done:
			case <-ctx.Done():
			}
			return
		}
	}()
	return out, nil
}

func (i *incoming) deliver(ctx context.Context, out chan<- *message.Message) (bool, error) {
	tx, err := i.store.DB().BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }()
	var name string
	err = tx.QueryRowContext(ctx, "DELETE FROM incoming WHERE id = (SELECT min(id) FROM incoming) RETURNING id").Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	m := msg(name, in(i.store.WithTx(ctx, tx)))
	out <- m
	select {
	case <-m.Acked():
		if err := tx.Commit(); err != nil {
			return false, err
		}
		i.outcomes <- name + " committed"
		return true, nil
	case <-m.Nacked():
	}
	if err := tx.Rollback(); err != nil {
		return false, err
	}
	i.outcomes <- name + " rolled back"
	select {
	case <-i.goOn:
		return true, nil
	case <-i.done:
		return false, nil
	}
}

func (i *incoming) Close() error {
	i.once.Do(func() { close(i.done) })
	return nil
}

// unlucky publishes, but returns an error for the first few calls.
type unlucky struct {
	message.Publisher
	mu   sync.Mutex
	fail int
	n    int
}

func (u *unlucky) Publish(topic string, messages ...*message.Message) error {
	err := u.Publisher.Publish(topic, messages...)
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil {
		u.n += len(messages)
	}
	if u.fail--; u.fail >= 0 {
		return errors.Join(err, errors.New("unlucky"))
	}
	return err
}

func (u *unlucky) published() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.n
}

// reporting passes the result of each call to the test.
type reporting struct {
	message.Publisher
	errs chan<- error
}

func (r reporting) Publish(topic string, messages ...*message.Message) error {
	err := r.Publisher.Publish(topic, messages...)
	r.errs <- err
	return err
}
