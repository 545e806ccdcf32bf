package forwarder_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/sqlite"
)

// waitForError waits for an error that has the text, among others.
func waitForError(t *testing.T, told <-chan error, text string) error {
	t.Helper()
	ended := time.After(patience)
	for {
		select {
		case err := <-told:
			if strings.Contains(err.Error(), text) {
				return err
			}
		case <-ended:
			require.FailNow(t, "OnError was not told", text)
		}
	}
}

func TestForwarder_Fail(t *testing.T) {
	t.Parallel()

	t.Run("OnError gets the errors", func(t *testing.T) {
		t.Parallel()
		t.Run("with a message", func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, dest message.Publisher, d *destination) {
				d.failOnly(outmill.Permanent(errPoison), "bad")
				err := waitForError(t, tellOf(t, dest, "bad"), `message bad of topic "orders"`)
				require.ErrorIs(t, err, errPoison)
			})
		})
		t.Run("with a topic", func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, dest message.Publisher, d *destination) {
				d.judge(func(string, *message.Message) error { return outmill.ErrTopicUnavailable })
				err := waitForError(t, tellOf(t, dest, "m"), `topic "orders" is held`)
				require.ErrorIs(t, err, outmill.ErrTopicUnavailable)
			})
		})
		t.Run("with the broker", func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, dest message.Publisher, d *destination) {
				d.goAway()
				err := waitForError(t, tellOf(t, dest, "m"), "the broker accepted no message")
				require.ErrorIs(t, err, errAway)
			})
		})
		t.Run("with upkeep", func(t *testing.T) {
			t.Parallel()
			store := &untidy{Store: newStore(t)}
			told := make(chan error, 100)
			cfg := quick()
			cfg.UpkeepInterval = 5 * time.Millisecond
			cfg.OnError = offer(told)
			start(t, store, newDestination(t), cfg)
			require.ErrorIs(t, waitForError(t, told, "janitor of the store"), errBroken)
		})
		t.Run("with a publisher that does not return", func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			add(t, store, rec("orders", "", "m"))
			d := newDestination(t)
			release := make(chan struct{})
			d.judge(func(string, *message.Message) error { <-release; return nil })
			told := make(chan error, 100)
			cfg := quick()
			cfg.PublishTimeout = time.Millisecond
			cfg.OnError = offer(told)
			start(t, store, d, cfg)
			waitForError(t, told, "has not returned")
			close(release)
			d.waitFor(t, 1)
		})
	})

	t.Run("a panic in OnError is logged and has no other effect", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		add(t, store, recs("orders", "", 5)...)
		d := newDestination(t)
		d.failOnly(outmill.Permanent(errPoison), nameOf("orders", "", 0))
		cfg := quick()
		cfg.OnError = func(error) { panic("oops") }
		l := journal.New()
		startLogged(t, store, d, cfg, l)
		d.waitFor(t, 4)
		requireDead(t, store, nameOf("orders", "", 0))
		require.Contains(t, l.Wait(t, "OnError panicked"), "oops")
		l.Wait(t, "could not be forwarded")
	})

	t.Run("OnError may call the forwarder", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		add(t, store, rec("orders", "", "m"))
		d := newDestination(t)
		d.goAway()
		running := make(chan *forwarder.Forwarder, 1)
		called := make(chan error, 1)
		cfg := quick()
		cfg.OnError = func(error) {
			select {
			case fwd := <-running:
				ended, cancel := context.WithCancel(context.Background())
				cancel()
				_, err := fwd.Once(ended)
				called <- err
			default:
			}
		}
		running <- start(t, store, d, cfg)
		require.Error(t, <-called)
	})
}

var errBroken = errors.New("the disk is full")

// untidy is a store whose upkeep fails.
type untidy struct{ *sqlite.Store }

// AreIdle has the janitor do its chores.
func (*untidy) AreIdle(context.Context, []any) ([]bool, error) { return []bool{false}, nil }

func (*untidy) ReapExpired(context.Context, int) (int, error) { return 0, errBroken }

// tellOf forwards a message and returns the errors that OnError gets.
func tellOf(t *testing.T, dest message.Publisher, id string) <-chan error {
	t.Helper()
	store := newStore(t)
	add(t, store, rec("orders", "", id))
	told := make(chan error, 100)
	cfg := quick()
	cfg.OnError = offer(told)
	start(t, store, dest, cfg)
	return told
}

// offer keeps errors while there is room.
func offer(to chan<- error) func(error) {
	return func(err error) {
		select {
		case to <- err:
		default:
		}
	}
}
