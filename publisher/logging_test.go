package publisher_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storekit"
)

const secret = "top-secret-4711"

// logged publishes with a logger for store and publisher that keeps every line, and returns
// these lines.
func logged(t *testing.T, cfg publisher.Config, publish func(pub *publisher.Publisher)) *journal.Journal {
	t.Helper()
	capture := journal.New()
	store := newLogged(t, sqlite.Config{Name: "shop"}, capture)
	pub, err := publisher.New(store, cfg, capture)
	require.NoError(t, err)
	publish(pub)
	require.NoError(t, pub.Close())
	return capture
}

// withSecrets makes a message whose payload and metadata must not appear in a log.
func withSecrets(name string) *message.Message {
	m := message.NewMessage(name, message.Payload(secret))
	m.Metadata.Set("card", secret)
	m.Metadata.Set(secret, "value")
	outmill.SetTenantID(m, secret)
	outmill.SetKey(m, secret)
	outmill.SetCorrelationID(m, "c-"+name)
	return m
}

func TestPublisher_Logging(t *testing.T) {
	t.Parallel()

	t.Run("An append is logged at DEBUG, for it is as frequent as the requests of a service (OBX-102)", func(t *testing.T) {
		t.Parallel()

		t.Run("with store, topic, message and correlation id", func(t *testing.T) {
			t.Parallel()
			log := logged(t, publisher.Config{AllowNoTx: true}, func(pub *publisher.Publisher) {
				require.NoError(t, pub.Publish(orders, withSecrets("m1")))
			})
			require.Equal(t, []journal.Line{{Level: watermill.DebugLogLevel, Msg: "Records appended", Fields: watermill.LogFields{
				"store": "shop", "topic": orders, "count": 1, "message_uuid": "m1", "correlation_id": "c-m1",
			}}}, log.Lines())
		})

		t.Run("once for a call, with the correlation ids that its messages have", func(t *testing.T) {
			t.Parallel()
			log := logged(t, publisher.Config{AllowNoTx: true}, func(pub *publisher.Publisher) {
				require.NoError(t, pub.Publish(orders, withSecrets("m1"), withSecrets("m1"), msg("bare"), withSecrets("m2")))
				var many []*message.Message
				for i := range 12 {
					many = append(many, withSecrets(fmt.Sprint(i)))
				}
				require.NoError(t, pub.Publish(orders, many...))
			})
			lines := log.Lines(watermill.DebugLogLevel)
			require.Len(t, lines, 2)
			require.Equal(t, watermill.LogFields{"store": "shop", "topic": orders, "count": 4, "correlation_id": "c-m1,c-m2"},
				lines[0].Fields)
			require.Equal(t, "c-0,c-1,c-2,c-3,c-4,c-5,c-6,c-7,c-8,c-9,…", lines[1].Fields["correlation_id"])
		})

		t.Run("with the number of duplicates", func(t *testing.T) {
			t.Parallel()
			log := logged(t, publisher.Config{AllowNoTx: true}, func(pub *publisher.Publisher) {
				require.NoError(t, pub.Publish(orders, keyed("m1", "d"), keyed("m2", "d"), keyed("m3", "d")))
			})
			require.Equal(t, 2, log.Lines(watermill.DebugLogLevel)[0].Fields["duplicates"])
		})

		t.Run("and not where nothing was appended", func(t *testing.T) {
			t.Parallel()
			log := logged(t, publisher.Config{RequireTx: true}, func(pub *publisher.Publisher) {
				require.Error(t, pub.Publish(orders, withSecrets("m1")))
				require.Error(t, pub.Publish("", withSecrets("m1")))
				require.NoError(t, pub.Publish(orders))
			})
			require.Empty(t, log.Lines(watermill.DebugLogLevel))
		})
	})

	t.Run("No payload and no metadata is ever logged or part of an error (OBX-125)", func(t *testing.T) {
		t.Parallel()
		var errs []error
		log := logged(t, publisher.Config{AllowNoTx: true}, func(pub *publisher.Publisher) {
			require.NoError(t, pub.Publish(orders, withSecrets("m1"), withSecrets("m2")))
			duplicate := withSecrets("m3")
			outmill.SetDedupKey(duplicate, secret)
			require.NoError(t, pub.Publish(orders, duplicate))
			require.NoError(t, pub.Publish(orders, duplicate))
			bad := withSecrets("m4")
			bad.Metadata.Set("card", secret+"\x00")
			bad.UUID = strings.Repeat("x", 256)
			outmill.SetKey(bad, secret+" ")
			errs = append(errs, pub.Publish(orders, withSecrets("m5"), bad))
			foreign := storekit.ContextWithTx(context.Background(), "another store", "its transaction")
			lost := withSecrets("m6")
			lost.SetContext(foreign)
			errs = append(errs, pub.Publish(orders, lost))
		})
		require.Empty(t, log.Find(secret))
		require.NotEmpty(t, log.Lines(watermill.DebugLogLevel))
		for _, err := range errs {
			require.Error(t, err)
			require.NotContains(t, err.Error(), secret)
		}
	})
}
