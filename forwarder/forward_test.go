package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/subscriber"
)

func TestForwarder_Forward(t *testing.T) {
	t.Parallel()

	t.Run("committed messages are forwarded and rolled back ones are not", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			start(t, store, dest, quick())
			pub, err := publisher.New(store, publisher.Config{RequireTx: true}, nil)
			require.NoError(t, err)
			publish := func(id string, end error) {
				err := store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
					return errors.Join(pub.WithContext(ctx).Publish("orders", message.NewMessage(id, nil)), end)
				})
				require.ErrorIs(t, err, end)
			}
			rollback := errors.New("no such customer")
			publish("1", nil)
			publish("2", rollback)
			publish("3", nil)
			publish("4", rollback)
			publish("5", nil)
			d.requireArrived(t, "1", "3", "5")
			requireEmpty(t, store)
		})
	})

	t.Run("a message arrives as it was published", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			start(t, store, dest, quick())
			pub, err := publisher.New(store, publisher.Config{}, nil)
			require.NoError(t, err)
			msg := message.NewMessage("the id", []byte("the payload"))
			msg.Metadata.Set("mine", "yes")
			outmill.SetKey(msg, "customer 7")
			outmill.SetCorrelationID(msg, "conversation")
			outmill.SetTenantID(msg, "tenant")
			outmill.SetTrace(msg, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1")
			outmill.SetDedupKey(msg, "once")
			require.NoError(t, pub.Publish("orders", msg))
			d.waitFor(t, 1)
			got := d.all()[0]
			require.Equal(t, "orders", got.topic)
			require.Equal(t, "the id", got.msg.UUID)
			require.Equal(t, "the payload", string(got.msg.Payload))
			require.Equal(t, message.Metadata{
				"mine":                        "yes",
				outmill.MetadataKey:           "customer 7",
				outmill.MetadataCorrelationID: "conversation",
				outmill.MetadataTenantID:      "tenant",
				outmill.MetadataTraceParent:   "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
				outmill.MetadataTraceState:    "vendor=1",
			}, got.msg.Metadata)
		})
	})

	t.Run("the context of a message describes its delivery", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			if _, raw := dest.(rawDestination); raw {
				t.Skip("a raw record has no context")
			}
			store := newStore(t)
			// The third try succeeds, whatever the machine does in between: ten that fail are the last.
			tries := 0
			d.judge(func(string, *message.Message) error {
				if tries++; tries < 3 {
					return outmill.RetryAfter(errors.New("slow down"), 0)
				}
				return nil
			})
			add(t, store, &outmill.Record{Topic: "orders", Key: "k", MessageID: "m", DedupKey: "once"})
			start(t, store, dest, quick())
			d.waitFor(t, 1)
			info, ok := outmill.Delivery(d.all()[0].msg.Context())
			require.True(t, ok)
			require.Equal(t, "orders", info.Topic)
			require.Equal(t, "k", info.Key)
			require.Equal(t, "once", info.DedupKey)
			require.Equal(t, forwarder.DefaultGroup, info.Group)
			require.Equal(t, store.Name(), info.Store)
			require.Equal(t, 3, info.Attempt)
			require.GreaterOrEqual(t, info.Claims, 3)
			require.False(t, info.ID.IsZero())
			require.Contains(t, info.LastError, "slow down")
			require.WithinDuration(t, time.Now(), info.CreatedAt, time.Minute)
			require.True(t, info.LeaseUntil().After(info.CreatedAt))
		})
	})

	t.Run("messages that were published before any forwarder existed are forwarded", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		add(t, store, recs("orders", "k", 250)...)
		d := newBatchDestination(t)
		start(t, store, d, quick())
		d.waitFor(t, 250)
		require.Equal(t, namesOf("orders", "k", 250), d.ids())
		requireEmpty(t, store)
	})

	t.Run("a delayed message is not forwarded before its time", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		d := newDestination(t)
		later := rec("orders", "", "tomorrow")
		later.Delay = 24 * time.Hour
		add(t, store, later, rec("orders", "", "now"))
		fwd := newForwarder(t, store, d, quick())
		n, err := fwd.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		d.requireArrived(t, "now")
	})

	t.Run("topics are chosen by name and pattern", func(t *testing.T) {
		t.Parallel()
		business := []string{"orders.eu", "orders.us", "invoices", "audit*"}
		all := slices.Concat(business, storekit.JoinTopics())
		for name, choice := range map[string]struct {
			topics outmill.Topics
			want   []string
		}{
			"all, unless said otherwise":      {outmill.Topics{}, business},
			"a pattern of all":                {outmill.Topics{Include: []string{"*"}}, business},
			"those of joins, by a pattern":    {outmill.Topics{Include: []string{"join.*"}}, []string{}},
			"those of joins, by name":         {outmill.Topics{Include: storekit.JoinTopics()}, storekit.JoinTopics()},
			"one of joins, by name":           {outmill.Topics{Include: []string{storekit.JoinRemoteTopic}}, []string{storekit.JoinRemoteTopic}},
			"all, and those of joins by name": {outmill.Topics{Include: append([]string{"*"}, storekit.JoinTopics()...)}, all},
			"that of joins, left out by name": {outmill.Topics{Include: []string{"*", storekit.JoinWaitTopic},
				Exclude: []string{storekit.JoinWaitTopic}}, business},
			"one by name":  {outmill.Topics{Include: []string{"invoices"}}, []string{"invoices"}},
			"by pattern":   {outmill.Topics{Include: []string{"orders.*"}}, []string{"orders.eu", "orders.us"}},
			"all but some": {outmill.Topics{Exclude: []string{"orders.*"}}, []string{"invoices", "audit*"}},
			"exclude wins over include": {outmill.Topics{Include: []string{"*s*"}, Exclude: []string{"orders.us"}},
				[]string{"orders.eu", "invoices"}},
			"a name with a star, taken exactly": {outmill.Topics{Include: []string{outmill.Exact("audit*")}}, []string{"audit*"}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				store := newStore(t)
				d := newBatchDestination(t)
				for _, topic := range all {
					add(t, store, rec(topic, "", topic))
				}
				cfg := quick()
				cfg.Topics = choice.topics
				n, err := newForwarder(t, store, d, cfg).Once(t.Context())
				require.NoError(t, err)
				require.Equal(t, len(choice.want), n)
				d.requireArrived(t, choice.want...)
				require.Len(t, list(t, store, ""), len(all)-len(choice.want), "the others must stay")
			})
		}
	})

	t.Run("two forwarders in two groups both get everything", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		one, two := newDestination(t), newBatchDestination(t)
		start(t, store, one, quick())
		cfg := quick()
		cfg.Group = "second destination"
		start(t, store, two, cfg)
		add(t, store, recs("orders", "k", 30)...)
		one.requireArrived(t, namesOf("orders", "k", 30)...)
		two.requireArrived(t, namesOf("orders", "k", 30)...)
		requireEmpty(t, store)
	})

	t.Run("a subscriber and a forwarder both get everything", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		d := newBatchDestination(t)
		start(t, store, d, quick())
		sub, err := subscriber.New(store, subscriber.Config{PollInterval: 5 * time.Millisecond}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, sub.Close()) }()
		messages, err := sub.Subscribe(t.Context(), "orders")
		require.NoError(t, err)
		add(t, store, recs("orders", "", 30)...)
		var handled []string
		for range 30 {
			msg := <-messages
			handled = append(handled, msg.UUID)
			msg.Ack()
		}
		slices.Sort(handled)
		require.Equal(t, namesOf("orders", "", 30), handled)
		d.requireArrived(t, namesOf("orders", "", 30)...)
		requireEmpty(t, store)
	})

	t.Run("two forwarders of one group share the messages", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			register(t, store)
			var ids []string
			for _, key := range []string{"a", "b", "c", "d", ""} {
				add(t, store, recs("orders", key, 60)...)
				ids = append(ids, namesOf("orders", key, 60)...)
			}
			cfg := quick()
			cfg.BatchSize = 10
			start(t, store, dest, cfg)
			start(t, store, dest, cfg)
			d.requireArrived(t, ids...)
			for _, key := range []string{"a", "b", "c", "d"} {
				require.Equal(t, namesOf("orders", key, 60), d.withKey(key), "the order of a key holds across forwarders")
			}
			requireEmpty(t, store)
		})
	})

	t.Run("the next batch is claimed and the last one acked while one is published", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		add(t, store, recs("orders", "", 30)...)
		d := newBatchDestination(t)
		second, goOn := make(chan struct{}), make(chan struct{})
		d.wrap(func(_ context.Context, _ []storekit.Outgoing, publish func() error) error {
			if len(d.allBatches()) == 2 {
				close(second)
				<-goOn
			}
			return publish()
		})
		cfg := quick()
		cfg.BatchSize = 10
		start(t, store, d, cfg)
		<-second
		require.Eventually(t, func() bool {
			return len(list(t, store, outmill.StatusLeased)) == 20 && len(list(t, store, outmill.StatusPending)) == 0
		}, patience, tick, "of three batches the first should be acked and the third claimed while the second is published")
		close(goOn)
		d.requireArrived(t, namesOf("orders", "", 30)...)
		requireEmpty(t, store)
	})

	t.Run("the bytes in memory are limited", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			register(t, store)
			records := recs("orders", "a", 12)
			for _, r := range records {
				r.Payload = make([]byte, 4<<10)
			}
			add(t, store, records...)
			most := 0
			d.judge(func(string, *message.Message) error {
				most = max(most, len(list(t, store, outmill.StatusLeased)))
				return nil
			})
			cfg := quick()
			cfg.MaxInFlightBytes = 10 << 10
			cfg.Lanes = 1
			start(t, store, dest, cfg)
			d.waitFor(t, 12)
			requireEmpty(t, store)
			require.LessOrEqual(t, most, 3)
		})
	})

	t.Run("a store of many topics is drained though one has a large backlog", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		add(t, store, recs("big", "", 1000)...)
		add(t, store, rec("small", "", "small"))
		d := newBatchDestination(t)
		cfg := quick()
		cfg.BatchSize = 50
		start(t, store, d, cfg)
		d.waitFor(t, 1001)
		require.Less(t, slices.Index(d.ids(), "small"), 500, "the small topic must not wait for the large one")
	})
}
