package forwarder_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/storekit"
)

// mortal allows one attempt, so that a lost attempt makes the record dead.
func mortal() outmill.RetryPolicy { return outmill.RetryPolicy{MaxAttempts: 1} }

func TestForwarder_Outage(t *testing.T) {
	t.Parallel()

	t.Run("during an outage no record loses an attempt or goes dead", func(t *testing.T) {
		t.Parallel()
		for name, err := range map[string]error{
			"and the publisher does not explain":          errAway,
			"and the publisher says that it is":           fmt.Errorf("%w: %w", outmill.ErrBrokerUnavailable, errAway),
			"and the publisher panics":                    nil,
			"and says something retryable by RetryPolicy": context.DeadlineExceeded,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				each(t, func(t *testing.T, dest message.Publisher, d *destination) {
					store := newStore(t)
					register(t, store)
					add(t, store, recs("orders", "a", 40)...)
					add(t, store, recs("orders", "", 40)...)
					d.judge(func(string, *message.Message) error {
						if err == nil {
							panic("connection refused")
						}
						return err
					})
					cfg := quick()
					cfg.Retry = mortal()
					cfg.BatchSize = 25
					start(t, store, dest, cfg)
					d.waitForTries(t, 25+20)
					requireUntouched(t, store)
					add(t, store, recs("orders", "b", 10)...)
					d.comeBack()
					d.waitFor(t, 90)
					require.Len(t, d.ids(), 90)
					require.Equal(t, namesOf("orders", "a", 40), d.withKey("a"))
					require.Equal(t, namesOf("orders", "b", 10), d.withKey("b"))
					requireEmpty(t, store)
				})
			})
		}
	})

	t.Run("during an outage the broker is probed with one message at a time", func(t *testing.T) {
		t.Parallel()
		t.Run("with a publisher of batches", func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			register(t, store)
			add(t, store, recs("orders", "", 500)...)
			d := newBatchDestination(t)
			d.goAway()
			cfg := quick()
			cfg.BatchSize = 50
			start(t, store, d, cfg)
			require.Eventually(t, func() bool { return len(d.allBatches()) > 10 }, patience, tick)
			for i, batch := range d.allBatches()[1:] {
				require.Len(t, batch, 1, "batch %d after the one that failed", i+1)
			}
			d.comeBack()
			d.requireArrived(t, namesOf("orders", "", 500)...)
			require.Eventually(t, func() bool { return len(list(t, store, "")) == 0 }, patience, tick)
			longest := 0
			for _, batch := range d.allBatches()[1:] {
				longest = max(longest, len(batch))
			}
			require.Equal(t, 50, longest, "whole batches again when it is back")
		})
		t.Run("with a plain publisher", func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			register(t, store)
			add(t, store, recs("orders", "", 500)...)
			d := newDestination(t)
			var tries, inside, crowded atomic.Int64
			d.judge(func(string, *message.Message) error {
				defer inside.Add(-1)
				if inside.Add(1) > 1 && tries.Load() >= 50 {
					crowded.Add(1)
				}
				tries.Add(1)
				return errAway
			})
			cfg := quick()
			cfg.BatchSize = 50
			start(t, store, d, cfg)
			d.waitForTries(t, 60)
			require.Zero(t, crowded.Load(), "messages were published at a time after the batch that failed")
		})
	})

	t.Run("probes take turns", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			register(t, store)
			add(t, store, recs("orders", "", 10)...)
			d.goAway()
			start(t, store, dest, quick())
			d.waitForTries(t, 10+30)
			probes := map[string]bool{}
			for _, id := range d.triedIDs()[10:] {
				probes[id] = true
			}
			require.Greater(t, len(probes), 5, "a bad record must not be the only probe: %v", probes)
		})
	})

	t.Run("without a waiting record the next message is the probe", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			register(t, store)
			add(t, store, rec("orders", "", "probe"))
			d.goAway()
			start(t, store, dest, quick())
			d.waitForTries(t, 3)
			deleted, err := store.Delete(t.Context(), list(t, store, "")[0].ID)
			require.NoError(t, err)
			require.Equal(t, 1, deleted)
			d.comeBack()
			add(t, store, recs("orders", "", 20)...)
			d.waitFor(t, 20)
			requireEmpty(t, store)
		})
	})

	t.Run("an outage in the middle of a batch costs no attempt", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			register(t, store)
			for _, key := range []string{"a", "b", "c", ""} {
				add(t, store, recs("orders", key, 50)...)
			}
			var taken atomic.Int64
			d.judge(func(string, *message.Message) error {
				if taken.Add(1) > 120 {
					return errAway
				}
				return nil
			})
			cfg := quick()
			cfg.Retry = mortal()
			start(t, store, dest, cfg)
			d.waitForTries(t, 250)
			requireUntouched(t, store)
			d.comeBack()
			d.waitFor(t, 200)
			for _, key := range []string{"a", "b", "c"} {
				require.Equal(t, namesOf("orders", key, 50), d.withKey(key))
			}
			require.Len(t, d.ids(), 200)
			requireEmpty(t, store)
		})
	})

	t.Run("repeated outages lose no message and make none dead", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			register(t, store)
			for _, key := range []string{"a", "b", "c", ""} {
				add(t, store, recs("orders", key, 50)...)
			}
			var tries atomic.Int64
			d.judge(func(string, *message.Message) error {
				if tries.Add(1)%45 > 37 {
					return errAway
				}
				return nil
			})
			cfg := quick()
			cfg.BatchSize = 20
			start(t, store, dest, cfg)
			d.waitFor(t, 200)
			for _, key := range []string{"a", "b", "c"} {
				require.Equal(t, namesOf("orders", key, 50), d.withKey(key))
			}
			require.Len(t, d.ids(), 200)
			requireEmpty(t, store)
		})
	})

	t.Run("a message that fails among others is retried and then dead, even if the error names no cause", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		add(t, store, recs("orders", "", 20)...)
		poison := nameOf("orders", "", 7)
		d := newDestination(t)
		d.failOnly(errPoison, poison)
		cfg := quick()
		cfg.Retry.MaxAttempts = 3
		told := make(chan *outmill.Record, 1)
		cfg.OnDead = func(rec *outmill.Record, _ string) { told <- rec }
		start(t, store, d, cfg)
		d.waitFor(t, 19)
		stop := keepBusy(t, store, d)
		defer stop()
		require.Equal(t, poison, (<-told).MessageID)
		dead := requireDead(t, store, poison)
		require.Equal(t, 3, dead[0].Attempts)
		require.Equal(t, errPoison.Error(), dead[0].LastError)
	})

	t.Run("an unexplained failure does not delay the few other messages", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		d := newDestination(t)
		d.failOnly(errPoison, "poison")
		cfg := quick()
		cfg.Retry.MaxAttempts = 3
		start(t, store, d, cfg)
		add(t, store, rec("orders", "", "poison"))
		d.waitForTries(t, 5)
		requireUntouched(t, store)
		for i := range 50 {
			add(t, store, rec("orders", "", fmt.Sprint(i)))
			d.waitFor(t, i+1)
		}
		stop := keepBusy(t, store, d)
		defer stop()
		requireDead(t, store, "poison")
	})

	t.Run("several unexplained failures go dead even among few other messages", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		bad := []string{"bad 1", "bad 2", "bad 3"}
		d := newDestination(t)
		d.failOnly(errPoison, bad...)
		cfg := quick()
		cfg.Retry.MaxAttempts = 2
		start(t, store, d, cfg)
		for _, id := range bad {
			add(t, store, rec("orders", "", id))
		}
		d.waitForTries(t, 10)
		stop := keepBusy(t, store, d)
		defer stop()
		requireDead(t, store, bad...)
	})

	t.Run("a part of the broker with a longer outage costs no attempt", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		d := newDestination(t)
		d.judge(func(_ string, msg *message.Message) error {
			if msg.Metadata.Get(outmill.MetadataKey) == "a" {
				return errAway
			}
			return nil
		})
		cfg := quick()
		cfg.Retry = mortal()
		cfg.MaxErrorBackoff = time.Minute
		start(t, store, d, cfg)
		stop := keepBusy(t, store, d)
		defer stop()
		add(t, store, recs("orders", "a", 5)...)
		tried := func() (n int) {
			for _, id := range d.triedIDs() {
				if id == nameOf("orders", "a", 0) {
					n++
				}
			}
			return n
		}
		require.Eventually(t, func() bool { return tried() >= 3 }, patience, tick)
		requireUntouched(t, store)
		d.comeBack()
		require.Eventually(t, func() bool { return len(d.withKey("a")) == 5 }, patience, tick)
		require.Equal(t, namesOf("orders", "a", 5), d.withKey("a"))
	})

	t.Run("a message that fails alone may have met an outage and never goes dead", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			register(t, store)
			add(t, store, rec("orders", "", "alone"))
			d.failOnly(errPoison, "alone")
			cfg := quick()
			cfg.Retry = mortal()
			start(t, store, dest, cfg)
			d.waitForTries(t, 30)
			requireUntouched(t, store)
			d.comeBack()
			d.requireArrived(t, "alone")
		})
	})

	t.Run("a topic that the broker refuses is held alone and tried again", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			register(t, store)
			add(t, store, recs("forbidden", "a", 10)...)
			add(t, store, recs("orders", "a", 10)...)
			refuse := func(topic string, _ *message.Message) error {
				if topic == "forbidden" {
					return fmt.Errorf("%w: not authorised", outmill.ErrTopicUnavailable)
				}
				return nil
			}
			d.judge(refuse)
			cfg := quick()
			cfg.Retry = mortal()
			cfg.BatchSize = 5
			start(t, store, dest, cfg)
			d.waitFor(t, 10)
			add(t, store, recs("orders", "b", 50)...)
			d.waitFor(t, 60)
			requireUntouched(t, store)
			require.Eventually(t, func() bool { return len(list(t, store, "")) == 10 }, patience, tick)
			tried := func() (n int) {
				for _, id := range d.triedIDs() {
					if strings.HasPrefix(id, "forbidden") {
						n++
					}
				}
				return n
			}
			before := tried()
			require.Eventually(t, func() bool { return tried() > before }, patience, tick, "it must be tried again")
			d.comeBack()
			d.waitFor(t, 70)
			require.Equal(t, namesOf("forbidden", "a", 10), d.ids()[60:])
			requireEmpty(t, store)
		})
	})

	t.Run("while all topics of a forwarder are held it claims no others", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		add(t, store, rec("forbidden", "", "forbidden"), rec("orders", "", "somebody else's"))
		d := newDestination(t)
		d.judge(func(string, *message.Message) error { return outmill.ErrTopicUnavailable })
		cfg := quick()
		cfg.Topics = outmill.Topics{Include: []string{"forbidden"}}
		start(t, store, d, cfg)
		d.waitForTries(t, 4)
		require.NotContains(t, d.triedIDs(), "somebody else's")
	})

	t.Run("a topic that is mapped is held under the name that it has in the store", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			register(t, store)
			add(t, store, recs("internal", "a", 10)...)
			add(t, store, recs("orders", "a", 10)...)
			d.judge(func(topic string, _ *message.Message) error {
				if topic == "public.internal" {
					return outmill.ErrTopicUnavailable
				}
				return nil
			})
			cfg := quick()
			cfg.Retry = mortal()
			cfg.BatchSize = 5
			cfg.MapTopic = func(topic string, _ *message.Message) string { return "public." + topic }
			start(t, store, dest, cfg)
			d.requireArrived(t, namesOf("orders", "a", 10)...)
			d.waitForTries(t, 15)
			requireUntouched(t, store)
			d.comeBack()
			d.waitFor(t, 20)
			require.Equal(t, "public.internal", d.all()[19].topic)
		})
	})

	t.Run("a topic that fails alone is held while others continue", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		add(t, store, recs("leaderless", "a", 10)...)
		add(t, store, recs("orders", "a", 10)...)
		d := newBatchDestination(t)
		d.judge(func(topic string, _ *message.Message) error {
			if topic == "leaderless" {
				return errAway
			}
			return nil
		})
		cfg := quick()
		cfg.Retry = mortal()
		cfg.BatchSize = 20
		l := journal.New()
		startLogged(t, store, d, cfg, l)
		d.requireArrived(t, namesOf("orders", "a", 10)...)
		add(t, store, recs("orders", "b", 50)...)
		d.waitFor(t, 60)
		require.Contains(t, l.Wait(t, "the forwarder holds it"), "topic:leaderless")
		requireUntouched(t, store)
		d.comeBack()
		d.waitFor(t, 70)
		require.Equal(t, namesOf("leaderless", "a", 10), d.ids()[60:])
	})

	t.Run("Classify explains the errors of a publisher that does not", func(t *testing.T) {
		t.Parallel()
		for name, classify := range map[string]func(err error) error{
			"as permanent":   outmill.Permanent,
			"as retry after": func(err error) error { return outmill.RetryAfter(err, 0) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				store := newStore(t)
				register(t, store)
				add(t, store, rec("orders", "", "poison"))
				d := newDestination(t)
				d.failOnly(errPoison, "poison")
				cfg := quick()
				cfg.Classify = func(err error) error {
					require.ErrorIs(t, err, errPoison)
					return classify(err)
				}
				start(t, store, d, cfg)
				requireDead(t, store, "poison")
			})
		}
		t.Run("as a refused topic", func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			add(t, store, rec("forbidden", "", "poison"))
			d := newDestination(t)
			d.failOnly(errPoison, "poison")
			cfg := quick()
			cfg.Classify = func(err error) error { return fmt.Errorf("%w: %w", outmill.ErrTopicUnavailable, err) }
			_, err := newForwarder(t, store, d, cfg).Once(t.Context())
			require.ErrorIs(t, err, outmill.ErrTopicUnavailable)
			requireUntouched(t, store)
		})
		for name, classify := range map[string]func(err error) error{
			"but not as success": func(error) error { return nil },
			"nor by a panic":     func(error) error { panic("no idea") },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				store := newStore(t)
				add(t, store, rec("orders", "", "m"))
				d := newDestination(t)
				d.goAway()
				cfg := quick()
				cfg.Classify = classify
				l := journal.New()
				startLogged(t, store, d, cfg, l)
				require.Contains(t, l.Wait(t, "The broker accepted no message"), errAway.Error())
				d.comeBack()
				d.requireArrived(t, "m")
			})
		}
	})

	t.Run("an error of a whole call does not decide about each of its messages", func(t *testing.T) {
		t.Parallel()
		for name, mark := range map[string]func(error) error{
			"permanent":         outmill.Permanent,
			"topic unavailable": func(err error) error { return fmt.Errorf("%w: %w", outmill.ErrTopicUnavailable, err) },
			"names no message":  func(error) error { return &storekit.PublishError{Total: 10} },
			"names another message": func(err error) error {
				return &storekit.PublishError{Failed: []storekit.FailedMessage{{Index: 99, Err: err}}}
			},
			"names message -1": func(err error) error {
				return &storekit.PublishError{Failed: []storekit.FailedMessage{{Index: -1, Err: err}}}
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				store := newStore(t)
				register(t, store)
				add(t, store, recs("orders", "a", 10)...)
				add(t, store, recs("invoices", "a", 10)...)
				d := newBatchDestination(t)
				d.wrap(func(_ context.Context, batch []storekit.Outgoing, publish func() error) error {
					if len(batch) > 1 {
						return mark(errPoison)
					}
					return publish()
				})
				start(t, store, d, quick())
				require.Eventually(t, func() bool { return len(d.allBatches()) > 3 }, patience, tick)
				requireUntouched(t, store)
				d.wrap(nil)
				d.requireArrived(t, append(namesOf("orders", "a", 10), namesOf("invoices", "a", 10)...)...)
			})
		}
	})

	t.Run("a failed message without a reason is a failed message", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		add(t, store, rec("orders", "", "m"))
		d := newBatchDestination(t)
		d.wrap(func(context.Context, []storekit.Outgoing, func() error) error {
			return &storekit.PublishError{Total: 1, Failed: []storekit.FailedMessage{{}}}
		})
		_, err := newForwarder(t, store, d, quick()).Once(t.Context())
		require.ErrorContains(t, err, "failed message without an error")
	})

	t.Run("a failed message without a reason is not taken for delivered", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		add(t, store, recs("orders", "", 3)...)
		d := newBatchDestination(t)
		var calls atomic.Int64
		d.wrap(func(_ context.Context, batch []storekit.Outgoing, publish func() error) error {
			if calls.Add(1) == 1 {
				require.NoError(t, d.publish(t.Context(), slices.Delete(slices.Clone(batch), 1, 2)))
				return &storekit.PublishError{Total: len(batch), Failed: []storekit.FailedMessage{{Index: 1}}}
			}
			return publish()
		})
		start(t, store, d, quick())
		d.requireArrived(t, namesOf("orders", "", 3)...)
		requireEmpty(t, store)
	})

	t.Run("a failed publish fails only the undelivered messages", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			register(t, store)
			add(t, store, recs("orders", "", 100)...)
			d.judge(func(_ string, msg *message.Message) error {
				if strings.HasSuffix(msg.UUID, "7") && len(d.triedIDs()) < 150 {
					return errAway
				}
				return nil
			})
			start(t, store, dest, quick())
			d.requireArrived(t, namesOf("orders", "", 100)...)
			requireEmpty(t, store)
		})
	})
}

// keepBusy appends a message and waits until it is forwarded, again and again.
func keepBusy(t *testing.T, store outmill.Store, d *destination) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ctx.Err() == nil; i++ {
			id := fmt.Sprint("busy ", i)
			if store.Append(ctx, rec("busy", "", id)) != nil {
				return
			}
			for ctx.Err() == nil && !slices.Contains(d.ids(), id) {
				select {
				case <-ctx.Done():
				case <-time.After(tick):
				}
			}
		}
	}()
	return func() { cancel(); <-ended }
}
