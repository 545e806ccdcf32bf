package main

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
)

// scrape is a page of metrics in Prometheus' text format.
type scrape string

// scrapeOf reads the metrics of a daemon; "" if it does not answer.
func scrapeOf(t *testing.T, base string) scrape {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/metrics", http.NoBody)
	require.NoError(t, err)
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Contains(t, response.Header.Get("Content-Type"), "text/plain")
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return scrape(text)
}

// value returns the only sample of the metric that has these labels, such as topic="orders";
// -1 if there is none.
func (s scrape) value(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	found, value := 0, -1.0
	for _, sample := range regexp.MustCompile("(?m)^"+name+`(\{.*\})? (\S+)$`).FindAllStringSubmatch(string(s), -1) {
		has := true
		for _, label := range labels {
			has = has && strings.Contains(sample[1], label)
		}
		if !has {
			continue
		}
		found++
		parsed, err := strconv.ParseFloat(sample[2], 64)
		require.NoError(t, err)
		value = parsed
	}
	require.LessOrEqual(t, found, 1, "%s %v: %s", name, labels, s)
	return value
}

func TestForwardMetrics(t *testing.T) {
	t.Parallel()

	t.Run("a scrape shows what was forwarded, what waits, and the breaker", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			broker := kafkatest.Fake(t)
			w.register(t, "audit", "private")
			records, _ := numbered("orders", 50)
			w.append(t, records...)
			w.append(t, &outmill.Record{Topic: "private"}, &outmill.Record{Topic: "private"})
			d := startDaemon(t, nil, w.url, "--to", "kafka://"+broker.Addrs[0], "--topic", "orders", "--listen", "127.0.0.1:0")
			base := "http://" + d.await(t, `msg="Serving /healthz, /readyz and /metrics" address=(\S+)`)[1]
			d.await(t, `publishes in batches`)
			sent := func(s scrape) float64 {
				return s.value(t, "outmill_publish_messages_total", `messaging_operation_name="forward"`, `messaging_system="outmill"`)
			}
			var s scrape
			require.Eventually(t, func() bool { s = scrapeOf(t, base); return sent(s) == 50 }, time.Minute, 10*time.Millisecond)
			require.InDelta(t, 1, s.value(t, "outmill_store_up"), 0)
			require.InDelta(t, 2, s.value(t, "outmill_records_pending", `group="audit"`, `topic="private"`), 0)
			require.Positive(t, s.value(t, "outmill_records_oldest_due_age_seconds", `topic="private"`))
			require.Positive(t, s.value(t, "outmill_store_operation_duration_seconds_count", `operation="claim"`))
			require.Zero(t, s.value(t, "outmill_forwarder_breaker_open", `forwarder="forwarder"`))
			require.Zero(t, s.value(t, "outmill_forwarder_topics_held", `forwarder="forwarder"`))
			require.Positive(t, s.value(t, "go_goroutines"))
			require.NotContains(t, string(s), "S3CRET")

			broker.Cluster.Close()
			w.append(t, &outmill.Record{Topic: "orders"})
			require.Eventually(t, func() bool {
				return scrapeOf(t, base).value(t, "outmill_forwarder_breaker_open") == 1
			}, time.Minute, 10*time.Millisecond)
			require.Equal(t, exitOK, d.stop(t), d.all.String())
		})
	})

	t.Run("tenants have the name of each member", func(t *testing.T) {
		t.Parallel()
		acme, globex := newWorld(t), newWorld(t)
		acme.append(t, &outmill.Record{Topic: "private"})
		file := writeFile(t, "to: 'memory:'\ntopic: orders\nlisten: 127.0.0.1:0\ntenants:\n  - {key: acme, url: '"+acme.url+
			"'}\n  - {key: globex, url: '"+globex.url+"'}\n")
		d := startDaemon(t, nil, "--config", file)
		base := "http://" + d.await(t, `msg="Serving /healthz, /readyz and /metrics" address=(\S+)`)[1]
		require.InDelta(t, 1, scrapeOf(t, base).value(t, "outmill_records_pending", `store="acme"`, `topic="private"`), 0)
		require.Equal(t, exitOK, d.stop(t), d.all.String())
	})
}
