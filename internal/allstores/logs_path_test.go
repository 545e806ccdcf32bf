package allstores

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/subscriber"
)

// paper is where slog writes its lines.
type paper struct {
	mu   sync.Mutex
	text bytes.Buffer
	// wrote is closed by the next line.
	wrote chan struct{}
}

func newPaper() *paper { return &paper{wrote: make(chan struct{})} }

func (p *paper) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.wrote)
	p.wrote = make(chan struct{})
	return p.text.Write(line)
}

func (p *paper) nextLine() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wrote
}

func (p *paper) logger() watermill.LoggerAdapter {
	return watermill.NewSlogLogger(slog.New(slog.NewJSONHandler(p, &slog.HandlerOptions{Level: slog.LevelDebug})))
}

// lines returns the lines of a message, or all for "".
func (p *paper) lines(t *testing.T, msg string) (found []map[string]any) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for text := range bytes.Lines(p.text.Bytes()) {
		line := decodeLine(t, text)
		if msg == "" || line["msg"] == msg {
			found = append(found, line)
		}
	}
	return found
}

// decodeLine requires that the line has no field twice, of which json.Unmarshal would keep the last.
func decodeLine(t *testing.T, text []byte) map[string]any {
	t.Helper()
	line := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(text))
	_, err := decoder.Token()
	require.NoError(t, err)
	for decoder.More() {
		name, err := decoder.Token()
		require.NoError(t, err)
		require.NotContains(t, line, name, "twice in %s", text)
		var value any
		require.NoError(t, decoder.Decode(&value))
		line[name.(string)] = value
	}
	return line
}

// requireLines requires that these are all lines of the message, each with the store's name,
// and each with the fields of one of want, in their order.
func (p *paper) requireLines(t *testing.T, level, msg string, want ...map[string]any) {
	t.Helper()
	found := p.lines(t, msg)
	require.Len(t, found, len(want), msg)
	for i, fields := range want {
		require.Equal(t, level, found[i]["level"], msg)
		for name, value := range fields {
			require.Equal(t, value, found[i][name], "%s: %s", msg, name)
		}
	}
}

func (p *paper) requireStore(t *testing.T) {
	t.Helper()
	all := p.lines(t, "")
	require.NotEmpty(t, all)
	for _, line := range all {
		require.Equal(t, "shop", line["store"], "%v", line)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	require.NotContains(t, p.text.String(), "secret")
}

// eachStoreOnPaper opens each store with Watermill's adapter of slog.
func eachStoreOnPaper(t *testing.T, test func(t *testing.T, s stand, log watermill.LoggerAdapter, on *paper)) {
	t.Helper()
	for name, open := range stands {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on := newPaper()
			log := on.logger()
			s := open(t, nil, log)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			require.NoError(t, s.Ensure(t.Context()))
			test(t, s, log, on)
		})
	}
}

func secretMessage(id string) *message.Message {
	msg := message.NewMessage(id, []byte("secret"))
	msg.Metadata.Set("card", "secret")
	outmill.SetCorrelationID(msg, "c1")
	return msg
}

// OBX-102 to OBX-107.
func TestLogs_Path(t *testing.T) {
	t.Parallel()

	t.Run("the way of a message to its handler is logged once for each step, with slog (OBX-104, OBX-105)", func(t *testing.T) {
		t.Parallel()
		eachStoreOnPaper(t, func(t *testing.T, s stand, log watermill.LoggerAdapter, on *paper) {
			cfg := quick()
			sub, err := subscriber.New(s, cfg, log)
			require.NoError(t, err)
			pub, err := publisher.New(s, publisher.Config{}, log)
			require.NoError(t, err)
			// The router's own lines are not of Outmill.
			router := newRouter(t)
			router.AddMiddleware(subscriber.KeepError)
			handled := make(chan struct{})
			attempts := 0
			router.AddConsumerHandler("bill", topic, sub, func(*message.Message) error {
				if attempts++; attempts == 1 {
					return errors.New("no stock")
				}
				close(handled)
				return nil
			})
			run(t, router)
			require.NoError(t, pub.Publish(topic, secretMessage("m1")))
			<-handled
			require.NoError(t, router.Close())
			require.NoError(t, sub.Close())

			on.requireLines(t, "DEBUG", "Records appended",
				map[string]any{"topic": topic, "correlation_id": "c1", "message_uuid": "m1", "count": 1.0})
			on.requireLines(t, "DEBUG", "Records claimed", map[string]any{"count": 1.0}, map[string]any{"count": 1.0})
			delivered := map[string]any{"topic": topic, "message_uuid": "m1", "attempt": 1.0}
			again := map[string]any{"topic": topic, "message_uuid": "m1", "attempt": 2.0}
			on.requireLines(t, "DEBUG", "Message delivered", delivered, again)
			on.requireLines(t, "ERROR", "Handling failed",
				map[string]any{"topic": topic, "message_uuid": "m1", "error": "no stock", "correlation_id": "c1", "dead": false})
			on.requireStore(t)
		})
	})

	t.Run("a message that the broker refuses is logged with its id, with slog", func(t *testing.T) {
		t.Parallel()
		eachStoreOnPaper(t, func(t *testing.T, s stand, log watermill.LoggerAdapter, on *paper) {
			pub, err := publisher.New(s, publisher.Config{}, log)
			require.NoError(t, err)
			fwd, err := forwarder.New(s, refusing{}, forwarder.Config{}, log)
			require.NoError(t, err)
			require.NoError(t, pub.Publish(topic, secretMessage("m1")))
			_, err = fwd.Once(context.Background())
			require.NoError(t, err)
			require.NoError(t, fwd.Close())
			on.requireLines(t, "ERROR", "Message could not be forwarded",
				map[string]any{"topic": topic, "message_uuid": "m1", "error": "too large", "dead": true})
			on.requireStore(t)
		})
	})
}

// refusing is a broker that accepts no message and never will.
type refusing struct{}

func (refusing) Publish(string, ...*message.Message) error {
	return outmill.Permanent(errors.New("too large"))
}
func (refusing) Close() error { return nil }
