package publisher_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/outmilltest"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
)

func TestPublisher_Refusals(t *testing.T) {
	t.Parallel()

	t.Run("New refuses", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		for name, c := range map[string]struct {
			writer outmill.Writer
			cfg    publisher.Config
			names  string
		}{
			"no store":                   {nil, publisher.Config{}, "the store is nil"},
			"a nil pointer to a store":   {(*sqlite.Store)(nil), publisher.Config{}, "the store is nil"},
			"a negative publish timeout": {store, publisher.Config{PublishTimeout: -time.Second}, "publisher.Config.PublishTimeout"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				pub, err := publisher.New(c.writer, c.cfg, nil)
				require.Nil(t, pub)
				require.ErrorIs(t, err, outmill.ErrInvalidConfig)
				require.ErrorContains(t, err, c.names)
			})
		}
	})

	t.Run("A nil logger of any kind logs nothing", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		for _, logger := range []watermill.LoggerAdapter{nil, (*watermill.StdLoggerAdapter)(nil)} {
			pub, err := publisher.New(store, publisher.Config{}, logger)
			require.NoError(t, err)
			require.NoError(t, pub.Publish(orders, msg("m1")))
		}
	})

	t.Run("A call with a topic that is no topic writes nothing", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		pub := newPublisher(t, store)
		for name, topic := range map[string]string{
			"empty":                  "",
			"256 characters":         strings.Repeat("t", 256),
			"256 UTF-16 units":       strings.Repeat("𝄞", 128),
			"a blank at its end":     "orders ",
			"a blank in front of it": "\torders",
			"invalid UTF-8":          "orders\xff",
			"a NUL byte":             "ord\x00ers",
		} {
			err := pub.Publish(topic, msg("m1"), msg("m2"))
			invalid := requireInvalid(t, err)
			require.Equal(t, "topic", invalid.Field, name)
			require.Equal(t, -1, invalid.Index, name)
			require.NotContains(t, err.Error(), "\n", "%s: reported once, not for each message", name)
		}
		requireEmpty(t, store)

		longest := strings.Repeat("𝄞", 127) + "t"
		require.NoError(t, pub.Publish(longest, msg("m1")))
		requirePublished(t, store, longest, "m1")
	})

	t.Run("One bad message refuses the whole call", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		pub := newPublisher(t, store)
		tooEarly := time.Date(0, 12, 31, 0, 0, 0, 0, time.UTC)
		long, invalid, nul := strings.Repeat("x", 256), "\xff", "a\x00b"
		set := func(name, value string) func(*message.Message) {
			return func(m *message.Message) { m.Metadata.Set(name, value) }
		}
		for _, c := range []struct {
			field  string
			change func(*message.Message)
		}{
			{"message id", func(m *message.Message) { m.UUID = long }},
			{"message id", func(m *message.Message) { m.UUID = invalid }},
			{"message id", func(m *message.Message) { m.UUID = nul }},
			{"key", set(outmill.MetadataKey, long)},
			{"key", set(outmill.MetadataKey, invalid)},
			{"key", set(outmill.MetadataKey, nul)},
			{"key", set(outmill.MetadataKey, "k ")},
			{"correlation id", set(outmill.MetadataCorrelationID, long)},
			{"correlation id", set(outmill.MetadataCorrelationID, nul)},
			{"causation id", set(outmill.MetadataCausationID, long)},
			{"tenant id", set(outmill.MetadataTenantID, long)},
			{"traceparent", set(outmill.MetadataTraceParent, long)},
			{"tracestate", set(outmill.MetadataTraceState, strings.Repeat("x", 1021))},
			{"dedup key", func(m *message.Message) { outmill.SetDedupKey(m, long) }},
			{"dedup key", func(m *message.Message) { outmill.SetDedupKey(m, " d") }},
			{`metadata "region"`, set("region", invalid)},
			{`metadata "region"`, set("region", nul)},
			{`metadata name "a\x00b"`, set(nul, "value")},
			{`metadata "outmill_due_at"`, func(m *message.Message) { outmill.SetDueAt(m, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)) }},
			{"due at", func(m *message.Message) { outmill.SetDueAt(m, tooEarly) }},
			{"expires at", func(m *message.Message) { outmill.SetExpiresAt(m, tooEarly) }},
			{`metadata "outmill_delay"`, func(m *message.Message) { outmill.SetDelay(m, time.Hour); m.UUID = "another" }},
			{"time to live", func(m *message.Message) { outmill.SetTimeToLive(m, -time.Second) }},
		} {
			err := pub.Publish(orders, msg("m0"), msg("bad", c.change), msg("m2"))
			invalid := requireInvalid(t, err)
			require.Equal(t, c.field, invalid.Field, "%v", err)
			require.Equal(t, 1, invalid.Index, "%v", err)
			require.NotEmpty(t, invalid.Reason)
		}
		requireEmpty(t, store)
	})

	t.Run("Every bad message of a call is named", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		pub := newPublisher(t, store, func(c *publisher.Config) { c.RequirePayload = true })
		late := msg("late")
		outmill.SetDueAt(late, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))
		err := pub.Publish(orders, nil, msg("m1"), late, message.NewMessage("bare", nil))
		require.Equal(t, []string{"0 message", `2 metadata "outmill_due_at"`, "3 payload"}, violations(err))
		requireEmpty(t, store)

		long := msg("long")
		outmill.SetKey(long, strings.Repeat("x", 256))
		outmill.SetTenantID(long, strings.Repeat("x", 256))
		err = pub.Publish(orders, long, msg("m1"), msg("\xff"))
		require.Equal(t, []string{"0 key", "0 tenant id", "2 message id"}, violations(err))
		requireEmpty(t, store)
	})

	t.Run("A nil payload", func(t *testing.T) {
		t.Parallel()

		t.Run("is published as it is by default, and an empty one stays empty", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			require.NoError(t, pub.Publish(orders, message.NewMessage("m1", nil), message.NewMessage("m2", message.Payload{})))
			outmilltest.RequirePublished(t, store, orders, outmilltest.MessageID("m1"), outmilltest.Payload(nil))
			outmilltest.RequirePublished(t, store, orders, outmilltest.MessageID("m2"), outmilltest.Payload([]byte{}))
		})

		t.Run("is refused where a payload is required, an empty one is not (OBX-005)", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store, func(c *publisher.Config) { c.RequirePayload = true })
			invalid := requireInvalid(t, pub.Publish(orders, msg("m1"), message.NewMessage("bare", nil)))
			require.Equal(t, "payload", invalid.Field)
			require.Equal(t, 1, invalid.Index)
			requireEmpty(t, store)
			require.NoError(t, pub.Publish(orders, message.NewMessage("empty", message.Payload{})))
			requirePublished(t, store, orders, "empty")
		})
	})

	t.Run("A missing schema is named with its remedy", func(t *testing.T) {
		t.Parallel()
		store, err := sqlite.Open(t.Context(), t.TempDir()+"/bare.db", sqlite.Config{}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		err = newPublisher(t, store).Publish(orders, msg("m1"))
		require.ErrorIs(t, err, outmill.ErrSchemaMissing)
		require.ErrorContains(t, err, "Ensure")
		require.ErrorContains(t, err, `publish to "orders"`)
	})

	t.Run("A closed store is ErrClosed", func(t *testing.T) {
		t.Parallel()
		store := newNamed(t, sqlite.Config{})
		pub := newPublisher(t, store)
		require.NoError(t, store.Close())
		require.ErrorIs(t, pub.Publish(orders, msg("m1")), outmill.ErrClosed)
	})
}

func requireInvalid(t *testing.T, err error) *outmill.InvalidRecordError {
	t.Helper()
	require.ErrorIs(t, err, outmill.ErrInvalidRecord)
	var invalid *outmill.InvalidRecordError
	require.ErrorAs(t, err, &invalid)
	return invalid
}

// violations lists the refusals in a joined error.
func violations(err error) []string {
	var found []string
	var walk func(error)
	walk = func(err error) {
		if invalid, ok := err.(*outmill.InvalidRecordError); ok { //nolint:errorlint // walks the tree itself
			found = append(found, fmt.Sprintf("%d %s", invalid.Index, invalid.Field))
			return
		}
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, one := range many.Unwrap() {
				walk(one)
			}
			return
		}
		if next := errors.Unwrap(err); next != nil {
			walk(next)
		}
	}
	walk(err)
	return found
}

func requireEmpty(t *testing.T, store *sqlite.Store) {
	t.Helper()
	found, err := store.List(t.Context(), outmill.ListQuery{})
	require.NoError(t, err)
	require.Empty(t, found)
}
