package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
)

// daemon is a running outmill forward.
type daemon struct {
	cmd *exec.Cmd
	// lines are those of its log; all has the ones that were read.
	lines *bufio.Scanner
	all   strings.Builder
}

func startDaemon(t *testing.T, env []string, args ...string) *daemon {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Minute)
	d := &daemon{cmd: exec.CommandContext(ctx, binary, append([]string{"forward", "--poll-interval", "50ms"}, args...)...)}
	d.cmd.Env = append(os.Environ(), env...)
	stderr, err := d.cmd.StderrPipe()
	require.NoError(t, err)
	d.lines = bufio.NewScanner(stderr)
	require.NoError(t, d.cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = d.cmd.Wait()
	})
	return d
}

// await reads the log to the line that matches, and returns its groups.
func (d *daemon) await(t *testing.T, pattern string) []string {
	t.Helper()
	line := regexp.MustCompile(pattern)
	for d.lines.Scan() {
		d.all.WriteString(d.lines.Text() + "\n")
		if found := line.FindStringSubmatch(d.lines.Text()); found != nil {
			return found
		}
	}
	require.Fail(t, "the log ended", "without %s:\n%s", pattern, d.all.String())
	return nil
}

// stop sends SIGTERM and returns the exit code.
func (d *daemon) stop(t *testing.T) int {
	t.Helper()
	return d.end(t, syscall.SIGTERM)
}

// end sends the signal and returns the exit code.
func (d *daemon) end(t *testing.T, signal syscall.Signal) int {
	t.Helper()
	require.NoError(t, d.cmd.Process.Signal(signal))
	for d.lines.Scan() {
		d.all.WriteString(d.lines.Text() + "\n")
	}
	_ = d.cmd.Wait()
	return d.cmd.ProcessState.ExitCode()
}

// read returns the payloads of n messages of a topic, in any order.
func read(t *testing.T, brokers []string, topic string, n int) []string {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var payloads []string
	for len(payloads) < n {
		fetches := client.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "%d of %d messages arrived", len(payloads), n)
		fetches.EachRecord(func(r *kgo.Record) { payloads = append(payloads, string(r.Value)) })
	}
	return payloads
}

// numbered makes records of the topic with the payloads 0 to n-1.
func numbered(topic string, n int) (records []*outmill.Record, payloads []string) {
	for i := range n {
		payloads = append(payloads, fmt.Sprint(i))
		records = append(records, &outmill.Record{Topic: topic, Payload: []byte(payloads[i])})
	}
	return records, payloads
}

func TestForward(t *testing.T) {
	t.Parallel()

	t.Run("one command without a file forwards from SQLite to a Kafka in its process", func(t *testing.T) {
		t.Parallel()
		url := "sqlite:" + newFile(t)
		d := startDaemon(t, nil, url, "--ensure", "--to", "memory:")
		broker := d.await(t, `msg=Forwarding .*kafka://(\S+) .*trials`)[1]
		d.await(t, `publishes in batches`)
		got := toolWith(t, "a\nb\nc\n", "publish", url, "--topic", "orders", "--lines")
		require.Equal(t, exitOK, got.code, got.stderr)
		require.ElementsMatch(t, []string{"a", "b", "c"}, read(t, []string{broker}, "orders", 3))
		require.Equal(t, exitOK, d.stop(t), d.all.String())
		require.Contains(t, d.all.String(), "Stopped forwarding")
	})

	t.Run("it forwards all that is committed to Kafka, and stops gracefully in the middle", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			broker := kafkatest.Fake(t)
			w.register(t, "forwarder")
			records, payloads := numbered("orders", 2000)
			w.append(t, records[:1000]...)
			args := []string{w.url, "--to", "kafka://" + strings.Join(broker.Addrs, ","), "--batch-size", "10"}
			first := startDaemon(t, nil, args...)
			first.await(t, `publishes in batches`)
			require.NotEmpty(t, read(t, broker.Addrs, "orders", 1))
			require.Equal(t, exitOK, first.stop(t), first.all.String())
			require.Zero(t, w.statusOf(t, "forwarder", "orders").Leased, "a stop gives back what it did not forward")
			w.append(t, records[1000:]...)
			second := startDaemon(t, nil, args...)
			require.ElementsMatch(t, payloads, read(t, broker.Addrs, "orders", 2000), "each arrives, and none twice")
			require.Equal(t, exitOK, second.stop(t), second.all.String())
			require.Zero(t, w.statusOf(t, "forwarder", "orders").Pending)
		})
	})

	t.Run("it forwards to NATS JetStream", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		url, js := startNATS(t)
		records, payloads := numbered("orders.placed", 500)
		w.append(t, records...)
		d := startDaemon(t, nil, w.url, "--to", url)
		stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "orders", Subjects: []string{"orders.>"}})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			info, err := stream.Info(t.Context())
			return err == nil && info.State.Msgs == 500
		}, time.Minute, 20*time.Millisecond)
		require.Equal(t, exitOK, d.stop(t), d.all.String())
		var got []string
		for seq := range uint64(500) {
			msg, err := stream.GetMsg(t.Context(), seq+1)
			require.NoError(t, err)
			got = append(got, string(msg.Data))
		}
		require.ElementsMatch(t, payloads, got)
	})

	t.Run("it forwards from a set of tenants that its file names", func(t *testing.T) {
		t.Parallel()
		acme, globex := newWorld(t), newWorld(t)
		broker := kafkatest.Fake(t)
		acme.append(t, &outmill.Record{Topic: "orders", Payload: []byte("of acme")})
		globex.append(t, &outmill.Record{Topic: "orders", Payload: []byte("of globex")})
		file := writeFile(t, "to: kafka://"+broker.Addrs[0]+"\ntopic-prefix: shop.\ntenants:\n  - {key: acme, url: '"+acme.url+
			"'}\n  - {key: globex, url: '"+globex.url+"'}\n")
		d := startDaemon(t, nil, "--config", file)
		require.ElementsMatch(t, []string{"of acme", "of globex"}, read(t, broker.Addrs, "shop.orders", 2))
		require.Equal(t, exitOK, d.stop(t), d.all.String())
	})

	t.Run("once forwards the due records and ends", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		broker := kafkatest.Fake(t)
		records, payloads := numbered("orders", 50)
		w.append(t, records...)
		w.append(t, &outmill.Record{Topic: "private"})
		ok(t, "forward", w.url, "--to", "kafka://"+broker.Addrs[0], "--topic", "ord*", "--once")
		require.ElementsMatch(t, payloads, read(t, broker.Addrs, "orders", 50))
		require.Equal(t, 1, w.statusOf(t, "", "private").Pending)
	})

	t.Run("a trial with a wrong broker takes nothing, and takes its group back", func(t *testing.T) {
		t.Parallel()
		file := newFile(t)
		url := "sqlite:" + file
		ok(t, "schema", "ensure", url)
		for i := range 3 {
			ok(t, "publish", url, "--topic", "invoices", "--payload", fmt.Sprint("invoice ", i))
		}
		trial := tool(t, "forward", url, "--to", "kafka://127.0.0.1:1?delivery_timeout=300ms", "--once")
		require.Equal(t, 1, trial.code, trial.stderr)
		require.Contains(t, trial.stderr, "the destination has not answered")
		require.Equal(t, "No group reads this store.\n", ok(t, "groups", "list", url))

		broker := kafkatest.Fake(t)
		ok(t, "forward", url, "--to", "kafka://"+broker.Addrs[0], "--once")
		require.ElementsMatch(t, []string{"invoice 0", "invoice 1", "invoice 2"}, read(t, broker.Addrs, "invoices", 3))
	})

	t.Run("a tenant that fails does not make the daemon unready, and is named as down", func(t *testing.T) {
		t.Parallel()
		well, file := newWorld(t), newFile(t)
		require.NoError(t, openDB(t, file).PingContext(t.Context()))
		broker := kafkatest.Fake(t)
		well.append(t, &outmill.Record{Topic: "orders", Payload: []byte("of globex")})
		d := startDaemon(t, nil, "--config", tenantsFile(t, "sqlite:"+file, well.url), "--to", "kafka://"+broker.Addrs[0],
			"--listen", "127.0.0.1:0")
		base := "http://" + d.await(t, `msg="Serving /healthz, /readyz and /metrics" address=(\S+)`)[1]
		require.Equal(t, []string{"of globex"}, read(t, broker.Addrs, "orders", 1))
		code, body := get(t, base+"/readyz")
		require.Equal(t, http.StatusOK, code, body)
		require.Contains(t, string(scrapeOf(t, base)), `outmill_store_up{store="acme"} 0`)
		require.Equal(t, exitOK, d.stop(t), d.all.String())
	})

	t.Run("the probes say whether it works, and nothing else", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		broker := kafkatest.Fake(t)
		d := startDaemon(t, nil, w.url, "--to", "kafka://"+broker.Addrs[0], "--listen", "127.0.0.1:0")
		base := "http://" + d.await(t, `msg="Serving /healthz, /readyz and /metrics" address=(\S+)`)[1]
		var body map[string]string
		require.Eventually(t, func() (is bool) {
			var code int
			code, body = get(t, base+"/readyz")
			return code == http.StatusOK
		}, time.Minute, 10*time.Millisecond)
		require.Equal(t, map[string]string{"process": "ok", "forwarder": "ok", "store": "ok", "broker": "ok"}, body)

		broker.Cluster.Close()
		require.Eventually(t, func() bool {
			code, body := get(t, base+"/readyz")
			return code == http.StatusServiceUnavailable && body["broker"] == "failed" && body["store"] == "ok"
		}, time.Minute, 10*time.Millisecond)
		code, body := get(t, base+"/healthz")
		require.Equal(t, http.StatusOK, code, "no restart helps against a broker that is away")
		require.Equal(t, map[string]string{"process": "ok"}, body)
		require.Equal(t, exitOK, d.stop(t), d.all.String())
	})

	t.Run("no password reaches the log", func(t *testing.T) {
		t.Parallel()
		w := openWorld(t, postgrestest.Database(t))
		for _, to := range []string{"kafka://me:S3CRET@127.0.0.1:1", "nats://me:S3CRET@127.0.0.1:1"} {
			d := startDaemon(t, nil, w.url, "--to", to, "--log-level", "debug", "--log-format", "json")
			d.await(t, `"msg":"Forwarding"`)
			d.await(t, `the destination has not answered`)
			require.Equal(t, exitOK, d.stop(t), d.all.String())
			require.NotContains(t, d.all.String(), "S3CRET")
		}
	})

	t.Run("settings that make no sense are refused by name", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		for want, args := range map[string][]string{
			"--to is missing":         {w.url},
			"--to begins with":        {w.url, "--to", "amqp://localhost"},
			"want HOST:PORT":          {w.url, "--to", "kafka://localhost"},
			"the parameter \"acks\"":  {w.url, "--to", "kafka://localhost:9092?acks=1"},
			"memory:PORT":             {w.url, "--to", "memory:x"},
			"--key-policy":            {w.url, "--to", "memory:", "--key-policy", "hold"},
			"--log-level":             {w.url, "--to", "memory:", "--log-level", "loud"},
			"--log-format":            {w.url, "--to", "memory:", "--log-format", "xml"},
			"memory-limit":            {w.url, "--to", "memory:", "--memory-limit", "lots"},
			"no store is named":       {"--to", "memory:"},
			"no configuration file":   {w.url, "--config", writeFile(t, "to: [S3CRET\n")},
			"does not exist":          {w.url, "--config", writeFile(t, "batchsize: 7\n")},
			"the setting batch-size ": {w.url, "--config", writeFile(t, "batch-size: many\n")},
			"url and tenants":         {"--config", writeFile(t, "url: sqlite:a.db\ntenants: [{key: a, url: b}]\n")},
			"tenant number 1":         {"--config", writeFile(t, "tenants: [{key: a}]\n")},
		} {
			got := tool(t, append([]string{"forward"}, args...)...)
			require.Equal(t, exitUsage, got.code, "%v: %s", args, got.stderr)
			require.Contains(t, got.stderr, want)
			require.NotContains(t, got.stderr, "S3CRET")
		}
		got := tool(t, "forward", w.url, "--config", filepath.Join(t.TempDir(), "missing.yaml"))
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, "missing.yaml")
	})
}

func TestForwardSettings(t *testing.T) {
	t.Parallel()

	t.Run("a flag wins over the environment, and this over the file", func(t *testing.T) {
		t.Parallel()
		file := writeFile(t, "to: kafka://file:1\nbatch-size: 7\ngroup: of-file\ntopic: [a, b]\nunordered: true\nlease: 1m\n")
		s, err := readSettings(file)
		require.NoError(t, err)
		cmd := forwardCommand(terminal{})
		require.NoError(t, cmd.ParseFlags([]string{"--batch-size", "9"}))
		variables := map[string]string{
			"OUTMILL_FORWARD_BATCH_SIZE": "8", "OUTMILL_FORWARD_GROUP": "of-env", "OUTMILL_FORWARD_EXCLUDE_TOPIC": "x,y",
		}
		lookup := func(name string) (string, bool) { value, found := variables[name]; return value, found }
		require.NoError(t, fill(cmd.Flags(), s, file, lookup))
		for name, want := range map[string]string{
			"to": "kafka://file:1", "batch-size": "9", "group": "of-env", "topic": "[a,b]", "exclude-topic": "[x,y]", "unordered": "true",
			"lease": "1m0s",
		} {
			require.Equal(t, want, cmd.Flags().Lookup(name).Value.String(), name)
		}
	})

	t.Run("a variable that makes no sense is refused by its name", func(t *testing.T) {
		t.Parallel()
		cmd := forwardCommand(terminal{})
		lookup := func(name string) (string, bool) { return "soon", name == "OUTMILL_FORWARD_LEASE" }
		require.ErrorContains(t, fill(cmd.Flags(), settings{}, "", lookup), "OUTMILL_FORWARD_LEASE")
	})

	t.Run("the url of Kafka sets the login and the client", func(t *testing.T) {
		t.Parallel()
		config, err := parseKafka("kafkas://us%40er:p%2Fw@a:9092,b:9093?sasl=scram-sha-512&compression=zstd&create_topics=false")
		require.NoError(t, err)
		require.NoError(t, config.Validate())
		require.Equal(t, []string{"a:9092", "b:9093"}, config.Brokers)
		require.NotNil(t, config.TLS)
		require.Equal(t, []any{"us@er", "p/w", "SCRAM-SHA-512", "zstd", true},
			[]any{config.SASL.Username, config.SASL.Password, string(config.SASL.Mechanism), string(config.Compression), config.NoTopicCreation})
	})

	t.Run("a number of bytes has a unit of 1024", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]bytesValue{"1": 1, "2KiB": 2048, "256MiB": 256 << 20, "1 GiB": 1 << 30} {
			var b bytesValue
			require.NoError(t, b.Set(text))
			require.Equal(t, want, b)
		}
		for _, text := range []string{"", "0", "-1", "1MB", "lots", "9999999999GiB"} {
			require.Error(t, new(bytesValue).Set(text), text)
		}
	})
}

// startNATS starts a NATS with JetStream in this process.
func startNATS(t *testing.T) (url string, js jetstream.JetStream) {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	})
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	require.True(t, s.ReadyForConnections(time.Minute))
	conn, err := nats.Connect(s.ClientURL())
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err = jetstream.New(conn)
	require.NoError(t, err)
	return s.ClientURL(), js
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "forward.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// get returns the status and the JSON of an answer; 0 where there is none.
func get(t *testing.T, url string) (code int, body map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &body))
	return response.StatusCode, body
}
