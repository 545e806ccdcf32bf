package forwarder_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
)

// logs keeps the log lines of every level.
type logs struct {
	with  watermill.LogFields
	lines *lines
}

type lines struct {
	mu  sync.Mutex
	all []string
}

func newLogs() *logs { return &logs{lines: &lines{}} }

func (l *logs) log(level, msg string, err error, fields watermill.LogFields) {
	l.lines.mu.Lock()
	defer l.lines.mu.Unlock()
	l.lines.all = append(l.lines.all, fmt.Sprintf("%s %s err=%v %v", level, msg, err, l.with.Add(fields)))
}

func (l *logs) Error(msg string, err error, fields watermill.LogFields) {
	l.log("ERROR", msg, err, fields)
}
func (l *logs) Info(msg string, fields watermill.LogFields)  { l.log("INFO", msg, nil, fields) }
func (l *logs) Debug(msg string, fields watermill.LogFields) { l.log("DEBUG", msg, nil, fields) }
func (l *logs) Trace(msg string, fields watermill.LogFields) { l.log("TRACE", msg, nil, fields) }
func (l *logs) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return &logs{with: l.with.Add(fields), lines: l.lines}
}

// find returns the lines that have all the words.
func (l *logs) find(words ...string) []string {
	l.lines.mu.Lock()
	defer l.lines.mu.Unlock()
	var found []string
	for _, line := range l.lines.all {
		has := true
		for _, word := range words {
			has = has && strings.Contains(line, word)
		}
		if has {
			found = append(found, line)
		}
	}
	return found
}

func (l *logs) waitFor(tb testing.TB, words ...string) string {
	tb.Helper()
	require.Eventually(tb, func() bool { return len(l.find(words...)) > 0 }, patience, tick, "no log line with %q", words)
	return l.find(words...)[0]
}

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
			l := newLogs()
			d.failOnly(outmill.Permanent(errPoison), nameOf("orders", "a", 0))
			startLogged(t, store, dest, quick(), l)
			d.waitFor(t, 4)
			d.goAway()
			secret := rec("orders", "", "more")
			secret.Payload = []byte("the secret")
			add(t, store, secret)
			l.waitFor(t, "The broker accepted no message")
			d.comeBack()
			d.waitFor(t, 5)
			require.NotEmpty(t, l.find(""))
			require.Empty(t, l.find("the secret"))
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
		l := newLogs()
		startLogged(t, store, d, quick(), l)
		line := l.waitFor(t, "could not be forwarded")
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
		l := newLogs()
		startLogged(t, store, d, quick(), l)
		line := l.waitFor(t, "The broker accepted no message")
		require.Contains(t, line, errAway.Error())
		require.Contains(t, line, "Check")
		d.comeBack()
		l.waitFor(t, "The broker accepts messages again")
	})

	t.Run("it warns of topics that no group has registered for", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		add(t, store, rec("forgotten", "", "m"))
		l := newLogs()
		cfg := quick()
		cfg.Topics = outmill.Topics{Include: []string{"orders"}}
		cfg.UpkeepInterval = 10 * time.Millisecond
		startLogged(t, store, newDestination(t), cfg, l)
		line := l.waitFor(t, "Warning", "no group has registered")
		require.Contains(t, line, "topic:forgotten")
	})

	t.Run("it warns once of a worker of its group that reads its topics in another way", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		other := outmill.Reading{Topics: outmill.Topics{Include: []string{"orders"}}, Order: outmill.OrderKey, KeyPolicy: outmill.KeySkip}
		require.NoError(t, store.RegisterGroup(t.Context(),
			outmill.Registration{Group: forwarder.DefaultGroup, Worker: "other", Reads: []outmill.Reading{other}}))
		l := newLogs()
		cfg := quick()
		cfg.UpkeepInterval, cfg.Worker = 10*time.Millisecond, "this"
		startLogged(t, store, newDestination(t), cfg, l)
		line := l.waitFor(t, "Warning", "in different orders or by different policies", "topic:orders")
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
		l := newLogs()
		cfg := quick()
		cfg.Topics = outmill.Topics{Include: []string{"orders"}}
		cfg.UpkeepInterval = 10 * time.Millisecond
		startLogged(t, store, newDestination(t), cfg, l)
		line := l.waitFor(t, "Warning", "no worker of the group has registered for their topic")
		require.Contains(t, line, "topic:forgotten")
		require.Empty(t, l.find("Warning", "topic:elsewhere"), "another worker of the group reads it")
	})
}
