package forwarder_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/internal/testenv/journal"
)

func TestForwarder_Logs(t *testing.T) {
	t.Parallel()

	t.Run("payloads are never logged (OBX-125)", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			register(t, store)
			records := recs("orders", "a", 5)
			for _, r := range records {
				r.Payload = []byte("the secret")
				r.Metadata = map[string]string{"also": "the secret"}
			}
			add(t, store, records...)
			l := journal.New()
			d.failOnly(outmill.Permanent(errPoison), nameOf("orders", "a", 0))
			startLogged(t, store, dest, quick(), l)
			d.waitFor(t, 4)
			d.goAway()
			secret := rec("orders", "", "more")
			secret.Payload = []byte("the secret")
			add(t, store, secret)
			l.Wait(t, "The broker accepted no message")
			d.comeBack()
			d.waitFor(t, 5)
			require.NotEmpty(t, l.Find(""))
			require.Empty(t, l.Find("the secret"))
		})
	})

	t.Run("a message that fails is logged with its ids (OBX-105)", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		bad := rec("orders", "a", "bad")
		bad.CorrelationID = "conversation"
		add(t, store, bad)
		d := newDestination(t)
		d.failOnly(outmill.Permanent(errPoison), "bad")
		l := journal.New()
		startLogged(t, store, d, quick(), l)
		line := l.Wait(t, "could not be forwarded")
		for _, want := range []string{"ERROR", errPoison.Error(), "message_uuid:bad", "topic:orders", "correlation_id:conversation",
			"work_item_id:" + bad.ID.String(), "dead:true", "store:" + store.Name(), "group:forwarder"} {
			require.Contains(t, line, want)
		}
	})

	t.Run("an outage is logged with its cause, a remedy and its end", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		add(t, store, rec("orders", "a", "m"))
		d := newDestination(t)
		d.goAway()
		l := journal.New()
		startLogged(t, store, d, quick(), l)
		line := l.Wait(t, "The broker accepted no message")
		require.Contains(t, line, errAway.Error())
		require.Contains(t, line, "Check")
		d.comeBack()
		l.Wait(t, "The broker accepts messages again")
	})

	t.Run("it warns of topics that no group has registered for", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		add(t, store, rec("forgotten", "", "m"))
		l := journal.New()
		cfg := quick()
		cfg.Topics = outmill.Topics{Include: []string{"orders"}}
		cfg.UpkeepInterval = 10 * time.Millisecond
		startLogged(t, store, newDestination(t), cfg, l)
		line := l.Wait(t, "Warning", "no group has registered")
		require.Contains(t, line, "topic:forgotten")
	})

	t.Run("it warns once of a worker of its group that reads its topics in another way", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		other := outmill.Reading{Topics: outmill.Topics{Include: []string{"orders"}}, Order: outmill.OrderKey, KeyPolicy: outmill.KeySkip}
		require.NoError(t, store.RegisterGroup(t.Context(),
			outmill.Registration{Group: forwarder.DefaultGroup, Worker: "other", Reads: []outmill.Reading{other}}))
		l := journal.New()
		cfg := quick()
		cfg.UpkeepInterval, cfg.Worker = 10*time.Millisecond, "this"
		startLogged(t, store, newDestination(t), cfg, l)
		line := l.Wait(t, "Warning", "in different orders or by different policies", "topic:orders")
		require.Contains(t, line, `"this" in the order of keys (block); "other" in the order of keys (skip)`)
		groups, err := store.Groups(t.Context())
		require.NoError(t, err)
		reads := map[string][]outmill.Reading{}
		for _, w := range groups[0].Workers {
			reads[w.Name] = w.Reads
		}
		// By default a forwarder leaves out the topics of package joins.
		own := outmill.Reading{Topics: reads["this"][0].Topics, Order: outmill.OrderKey}
		require.Equal(t, map[string][]outmill.Reading{"other": {other}, "this": {own}}, reads)
	})

	t.Run("it warns of topics of its group that no worker has registered for", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		add(t, store, rec("elsewhere", "", "m"), rec("forgotten", "", "m2"))
		// The worker that registered for all topics has been gone for a while.
		_, err := store.DB().ExecContext(t.Context(), `UPDATE outmill_entries SET made_at = 1 WHERE kind = 'registration'`)
		require.NoError(t, err)
		require.NoError(t, store.RegisterGroup(t.Context(),
			outmill.Registration{Group: forwarder.DefaultGroup, Topics: outmill.Topics{Include: []string{"elsewhere"}}}))
		l := journal.New()
		cfg := quick()
		cfg.Topics = outmill.Topics{Include: []string{"orders"}}
		cfg.UpkeepInterval = 10 * time.Millisecond
		startLogged(t, store, newDestination(t), cfg, l)
		line := l.Wait(t, "Warning", "no worker of the group has registered for their topic")
		require.Contains(t, line, "topic:forgotten")
		require.Empty(t, l.Find("Warning", "topic:elsewhere"), "another worker of the group reads it")
	})
}
