package allstores

import (
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/sagas"
	"github.com/outmill/outmill/subscriber"
)

// euro has 3 bytes of UTF-8, for the longest names.
const euro = "€"

// scopeTest is a store whose router has one inbox for all handlers.
type scopeTest struct {
	site
	router *message.Router
	box    *inbox.Inbox
}

func newScopeTest(t *testing.T, s site, shared bool) scopeTest {
	t.Helper()
	box, err := inbox.New(s.store, inbox.Config{Consumer: "shop", Publisher: s.pub, Shared: shared})
	require.NoError(t, err)
	router := newRouter(t)
	router.AddMiddleware(subscriber.KeepError, box.Middleware)
	return scopeTest{s, router, box}
}

// handle adds a handler that publishes what it gets to the topic effects, as its name.
func (s scopeTest) handle(t *testing.T, name, topic, group string) {
	t.Helper()
	s.router.AddConsumerHandler(name, topic, s.subscriber(t, group), func(msg *message.Message) error {
		tenant := strings.TrimLeft(msg.Metadata.Get(outmill.MetadataTenantID), euro)
		effect := message.NewMessage(msg.UUID+" by "+name+" of "+tenant, nil)
		return s.pub.WithContext(msg.Context()).Publish("effects", effect)
	})
}

func (s scopeTest) publish(t *testing.T, topic, uuid, tenant string) {
	t.Helper()
	msg := message.NewMessage(uuid, nil)
	outmill.SetTenantID(msg, tenant)
	require.NoError(t, s.pub.Publish(topic, msg))
}

// effects are those that are there when the topics are empty.
func (s scopeTest) effects(t *testing.T, topics ...string) (names []string) {
	t.Helper()
	for _, topic := range topics {
		require.Eventually(t, func() bool { return len(left(t, s.store, topic)) == 0 }, patience, 10*time.Millisecond)
	}
	for _, r := range left(t, s.store, "effects") {
		names = append(names, r.MessageID)
	}
	return names
}

// TestInbox_Scope has one message id that comes in several ways, each time twice.
func TestInbox_Scope(t *testing.T) {
	t.Parallel()
	t.Run("one inbox serves the handlers of two groups, of two topics and of tenants", func(t *testing.T) {
		t.Parallel()
		onEachStore(t, func(t *testing.T, site site) {
			s := newScopeTest(t, site, false)
			s.handle(t, "billing", "orders", "billing")
			s.handle(t, "shipping", "orders", "shipping")
			s.handle(t, "returning", "returns", "shipping")
			run(t, s.router)
			for range 2 {
				s.publish(t, "orders", "m1", "")
				s.publish(t, "orders", "m1", "acme")
				s.publish(t, "orders", "m1", "zenith")
				s.publish(t, "returns", "m1", "")
			}
			require.ElementsMatch(t, []string{
				"m1 by billing of ", "m1 by billing of acme", "m1 by billing of zenith",
				"m1 by shipping of ", "m1 by shipping of acme", "m1 by shipping of zenith",
				"m1 by returning of ",
			}, s.effects(t, "orders", "returns"))
		})
	})
	t.Run("a handler passes its message through to the next topic", func(t *testing.T) {
		t.Parallel()
		onEachStore(t, func(t *testing.T, site site) {
			s := newScopeTest(t, site, false)
			s.router.AddHandler("first", "orders", s.subscriber(t, ""), "checked", s.pub,
				func(msg *message.Message) ([]*message.Message, error) { return message.Messages{msg}, nil })
			s.handle(t, "second", "checked", "")
			run(t, s.router)
			for range 2 {
				s.publish(t, "orders", "m1", "")
			}
			require.Equal(t, []string{"m1 by second of "}, s.effects(t, "orders", "checked"))
		})
	})
	t.Run("a shared inbox handles the message once, by one of them", func(t *testing.T) {
		t.Parallel()
		onEachStore(t, func(t *testing.T, site site) {
			s := newScopeTest(t, site, true)
			s.handle(t, "billing", "orders", "billing")
			s.handle(t, "shipping", "orders", "shipping")
			s.handle(t, "returning", "returns", "")
			run(t, s.router)
			s.publish(t, "orders", "m1", "")
			s.publish(t, "orders", "m1", "acme")
			s.publish(t, "returns", "m1", "")
			require.Len(t, s.effects(t, "orders", "returns"), 1)
		})
	})
	t.Run("the longest names have notes of their own", func(t *testing.T) {
		t.Parallel()
		onEachStore(t, func(t *testing.T, site site) {
			s := newScopeTest(t, site, false)
			topic, tenant := strings.Repeat(euro, outmill.MaxTopicLength), strings.Repeat(euro, 254)
			group, other := strings.Repeat(euro, 254)+"1", strings.Repeat(euro, 254)+"2"
			s.handle(t, "billing", topic, group)
			s.handle(t, "shipping", topic, other)
			run(t, s.router)
			for range 2 {
				s.publish(t, topic, strings.Repeat(euro, 200), tenant)
			}
			require.Len(t, s.effects(t, topic), 2)
		})
	})
}

func TestSagas_OneIDOnTwoTopics(t *testing.T) {
	t.Parallel()
	t.Run("a saga handles a message id once on each of its topics", func(t *testing.T) {
		t.Parallel()
		onEachKeeper(t, func(t *testing.T, k keeper) {
			step := func(c *sagas.Context[parcel], _ parcelEvent) error { c.State.Steps++; return nil }
			k.start(t, sagas.Config{Inbox: &inbox.Config{}}, k.subscriber(t, ""),
				sagas.StartedBy("placed", ofParcel, step), sagas.StartedBy("enriched", ofParcel, step))
			for range 2 {
				k.publish(t, "placed", "m1", "o1")
				k.publish(t, "enriched", "m1", "o1")
			}
			for _, topic := range []string{"placed", "enriched"} {
				require.Eventually(t, func() bool { return len(left(t, k.store, topic)) == 0 }, patience, 10*time.Millisecond)
			}
			_, state, err := k.find(t, "o1")
			require.NoError(t, err)
			require.Equal(t, 2, state.Steps)
		})
	})
}
