package forwarder_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
)

func TestForwarder_Hooks(t *testing.T) {
	t.Parallel()

	t.Run("Filter leaves messages out and they are done", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			add(t, store, recs("orders", "a", 10)...)
			cfg := quick()
			cfg.Filter = func(topic string, msg *message.Message) bool {
				return topic == "orders" && strings.HasSuffix(msg.UUID, "3")
			}
			n, err := newForwarder(t, store, dest, cfg).Once(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, n, "Once counts what was published")
			d.requireArrived(t, nameOf("orders", "a", 3))
			require.Empty(t, list(t, store, ""))
		})
	})

	t.Run("Transform replaces messages and MapTopic gets the replacement", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			add(t, store, rec("orders", "a", "m"))
			cfg := quick()
			cfg.Transform = func(topic string, msg *message.Message) (*message.Message, error) {
				out := message.NewMessage(msg.UUID, append([]byte(topic+": "), msg.Payload...))
				out.Metadata.Set("to", "public")
				return out, nil
			}
			cfg.MapTopic = func(topic string, msg *message.Message) string { return msg.Metadata.Get("to") + "." + topic }
			_, err := newForwarder(t, store, dest, cfg).Once(t.Context())
			require.NoError(t, err)
			got := d.all()[0]
			require.Equal(t, "public.orders", got.topic)
			require.Equal(t, "orders: payload of m", string(got.msg.Payload))
		})
	})

	t.Run("hooks learn of the delivery from the message's context", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		add(t, store, rec("orders", "a", "m"))
		d := newDestination(t)
		cfg := quick()
		var seen []outmill.DeliveryInfo
		look := func(msg *message.Message) {
			info, ok := outmill.Delivery(msg.Context())
			require.True(t, ok)
			seen = append(seen, info)
		}
		cfg.Filter = func(_ string, msg *message.Message) bool { look(msg); return true }
		cfg.Transform = func(_ string, msg *message.Message) (*message.Message, error) { look(msg); return msg, nil }
		cfg.MapTopic = func(topic string, msg *message.Message) string { look(msg); return topic }
		before := time.Now().Round(0)
		_, err := newForwarder(t, store, d, cfg).Once(t.Context())
		require.NoError(t, err)
		require.Len(t, seen, 3)
		require.Equal(t, "a", seen[0].Key)
		require.Equal(t, 1, seen[0].Attempt)
		require.False(t, seen[0].StartedAt.Before(before) || seen[0].StartedAt.After(time.Now()), "the handling began at %s", seen[0].StartedAt)
		require.Equal(t, seen[0].StartedAt, seen[2].StartedAt)
	})

	t.Run("a hook that fails fails its message alone", func(t *testing.T) {
		t.Parallel()
		type typedNil struct{ error }
		hooks := map[string]struct {
			set  func(cfg *forwarder.Config, bad func(*message.Message) bool)
			says string
		}{
			"Transform returns an error": {says: errPoison.Error(), set: func(cfg *forwarder.Config, bad func(*message.Message) bool) {
				cfg.Transform = func(_ string, msg *message.Message) (*message.Message, error) {
					if bad(msg) {
						return nil, errPoison
					}
					return msg, nil
				}
			}},
			"Transform returns a permanent error": {says: errPoison.Error(), set: func(cfg *forwarder.Config, bad func(*message.Message) bool) {
				cfg.Retry.MaxAttempts = -1
				cfg.Transform = func(_ string, msg *message.Message) (*message.Message, error) {
					if bad(msg) {
						return nil, outmill.Permanent(errPoison)
					}
					return msg, nil
				}
			}},
			"Transform returns a nil error that is none": {says: "nil", set: func(cfg *forwarder.Config, bad func(*message.Message) bool) {
				cfg.Transform = func(_ string, msg *message.Message) (*message.Message, error) {
					if bad(msg) {
						return nil, (*typedNil)(nil)
					}
					return msg, nil
				}
			}},
			"Transform returns nothing": {says: "Transform", set: func(cfg *forwarder.Config, bad func(*message.Message) bool) {
				cfg.Transform = func(_ string, msg *message.Message) (*message.Message, error) {
					if bad(msg) {
						return nil, nil
					}
					return msg, nil
				}
			}},
			"Transform panics": {says: "panicked: oops", set: func(cfg *forwarder.Config, bad func(*message.Message) bool) {
				cfg.Transform = func(_ string, msg *message.Message) (*message.Message, error) {
					if bad(msg) {
						panic("oops")
					}
					return msg, nil
				}
			}},
			"Filter panics": {says: "panicked: oops", set: func(cfg *forwarder.Config, bad func(*message.Message) bool) {
				cfg.Filter = func(_ string, msg *message.Message) bool {
					if bad(msg) {
						panic(errors.New("oops"))
					}
					return true
				}
			}},
			"MapTopic panics": {says: "panicked: oops", set: func(cfg *forwarder.Config, bad func(*message.Message) bool) {
				cfg.MapTopic = func(topic string, msg *message.Message) string {
					if bad(msg) {
						panic("oops")
					}
					return topic
				}
			}},
			"MapTopic returns no topic": {says: "MapTopic", set: func(cfg *forwarder.Config, bad func(*message.Message) bool) {
				cfg.MapTopic = func(topic string, msg *message.Message) string {
					if bad(msg) {
						return ""
					}
					return topic
				}
			}},
		}
		for name, hook := range hooks {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				each(t, func(t *testing.T, dest message.Publisher, d *destination) {
					store := newStore(t)
					register(t, store)
					add(t, store, recs("orders", "a", 5)...)
					cfg := quick()
					cfg.Retry.MaxAttempts = 3
					bad := nameOf("orders", "a", 2)
					hook.set(&cfg, func(msg *message.Message) bool { return msg.UUID == bad })
					start(t, store, dest, cfg)
					dead := requireDead(t, store, bad)
					require.Contains(t, dead[0].LastError, hook.says)
					d.waitFor(t, 4)
					require.NotContains(t, d.triedIDs(), bad)
					require.Len(t, d.withKey("a"), 4)
				})
			})
		}
	})

	t.Run("a hook may postpone its message without losing an attempt", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		add(t, store, recs("orders", "a", 3)...)
		d := newDestination(t)
		cfg := quick()
		cfg.Retry = mortal()
		left := 3
		cfg.Transform = func(_ string, msg *message.Message) (*message.Message, error) {
			if left--; left >= 0 {
				return nil, outmill.Snooze(0)
			}
			return msg, nil
		}
		start(t, store, d, cfg)
		d.waitFor(t, 3)
		require.Equal(t, namesOf("orders", "a", 3), d.withKey("a"))
	})

	t.Run("hooks that are slow leave the rest of a batch for another time", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			register(t, store)
			add(t, store, recs("orders", "a", 20)...)
			cfg := quick()
			cfg.Retry = mortal()
			cfg.PublishTimeout = 50 * time.Millisecond
			calls := 0
			cfg.Transform = func(_ string, msg *message.Message) (*message.Message, error) {
				calls++
				<-time.After(30 * time.Millisecond)
				return msg, nil
			}
			start(t, store, dest, cfg)
			requireEmpty(t, store)
			require.Equal(t, namesOf("orders", "a", 20), d.withKey("a"))
			require.Less(t, calls, 40, "the hooks must not run again and again for nothing")
		})
	})

	t.Run("OnDead gets the record as it is stored", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		bad := rec("orders", "a", "bad")
		bad.Metadata = map[string]string{"mine": "yes"}
		add(t, store, bad)
		d := newDestination(t)
		d.failOnly(outmill.Permanent(errPoison), "bad")
		cfg := quick()
		cfg.Transform = func(_ string, msg *message.Message) (*message.Message, error) {
			msg.Metadata.Set("mine", "no")
			msg.Metadata.Set("more", "yes")
			return msg, nil
		}
		told := make(chan *outmill.Record, 1)
		cfg.OnDead = func(rec *outmill.Record, _ string) { told <- rec }
		start(t, store, d, cfg)
		got := <-told
		require.Equal(t, map[string]string{"mine": "yes"}, got.Metadata)
		require.Equal(t, "a", got.Key)
		require.Equal(t, "payload of bad", string(got.Payload))
	})

	t.Run("a panic in OnDead has no effect", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		add(t, store, recs("orders", "", 5)...)
		d := newDestination(t)
		d.failOnly(outmill.Permanent(errPoison), nameOf("orders", "", 0))
		cfg := quick()
		cfg.OnDead = func(*outmill.Record, string) { panic("oops") }
		start(t, store, d, cfg)
		d.waitFor(t, 4)
		requireDead(t, store, nameOf("orders", "", 0))
		add(t, store, rec("orders", "", "later"))
		d.waitFor(t, 5)
		require.Eventually(t, func() bool { return len(list(t, store, "")) == 1 }, patience, tick)
	})
}
