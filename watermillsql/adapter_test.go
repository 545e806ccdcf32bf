package watermillsql_test

import (
	"context"
	stdsql "database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx" of database/sql
	_ "github.com/lib/pq"              // the driver "postgres" of database/sql
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/subscriber"
	"github.com/outmill/outmill/watermillsql"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// bench is an outbox, with the program's own handle of its database.
type bench struct {
	*testing.T
	store *postgres.Store
	db    *stdsql.DB
}

// each runs the test with both drivers.
func each(t *testing.T, test func(b bench)) {
	t.Helper()
	t.Parallel()
	for name, driver := range map[string]string{"pgx": "pgx", "lib/pq": "postgres"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newBench(t, driver))
		})
	}
}

func newBench(t *testing.T, driver string) bench {
	t.Helper()
	url := postgrestest.Database(t)
	store, err := postgres.Open(t.Context(), url, postgres.Config{EnsureSchema: true}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	if !strings.Contains(url, "sslmode=") {
		mark := "?"
		if strings.Contains(url, "?") {
			mark = "&"
		}
		url += mark + "sslmode=disable"
	}
	db, err := stdsql.Open(driver, url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return bench{t, store, db}
}

// publisher returns watermill-sql's Publisher.
func (b bench) publisher(to sql.ContextExecutor, logger watermill.LoggerAdapter) *sql.Publisher {
	b.Helper()
	adapter, err := watermillsql.New(postgres.Config{})
	require.NoError(b, err)
	pub, err := sql.NewPublisher(to, sql.PublisherConfig{SchemaAdapter: adapter}, logger)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, pub.Close()) })
	return pub
}

// inTx publishes in a transaction, and commits it or rolls it back.
func (b bench) inTx(commit bool, topic string, messages ...*message.Message) {
	b.Helper()
	tx, err := b.db.BeginTx(b.Context(), nil)
	require.NoError(b, err)
	defer func() { _ = tx.Rollback() }()
	require.NoError(b, b.publisher(tx, nil).Publish(topic, messages...))
	if commit {
		require.NoError(b, tx.Commit())
	}
}

func (b bench) listed() []*outmill.Record {
	b.Helper()
	found, err := b.store.List(b.Context(), outmill.ListQuery{Limit: 1000})
	require.NoError(b, err)
	return found
}

func named(name string) *message.Message {
	return message.NewMessage(name, []byte("payload of "+name))
}

// delivery is a message in the form that a reader gets.
type delivery struct {
	id, payload string
	metadata    message.Metadata
}

func receive(t *testing.T, from <-chan *message.Message, n int) []delivery {
	t.Helper()
	var got []delivery
	for range n {
		select {
		case msg := <-from:
			got = append(got, delivery{msg.UUID, string(msg.Payload), msg.Metadata})
			msg.Ack()
		case <-time.After(patience):
			require.FailNow(t, "nothing came", "%v", got)
		}
	}
	return got
}

// identified returns a message with all metadata that identify a message, and some custom
// metadata.
func identified(name string) *message.Message {
	msg := message.NewMessage(name, []byte{0, 1, '"', '\\', '\'', 255})
	msg.Metadata.Set("own", `va"l\ue é`+"\n")
	outmill.SetKey(msg, "key'1")
	outmill.SetCorrelationID(msg, "correlation")
	outmill.SetCausationID(msg, "cause")
	outmill.SetTenantID(msg, "tenant")
	outmill.SetTrace(msg, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=b")
	return msg
}

func TestAdapter_Serial(t *testing.T) {
	// With a poll interval of an hour, the test fails unless the readers are woken.
	t.Run("what watermill sqls publisher commits reaches subscriber and forwarder", func(t *testing.T) {
		each(t, func(b bench) {
			sub, err := subscriber.New(b.store, subscriber.Config{Order: outmill.OrderKey, PollInterval: time.Hour}, nil)
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, sub.Close()) })
			ctx, stop := context.WithCancel(b.Context())
			defer stop()
			received, err := sub.Subscribe(ctx, "orders")
			require.NoError(b, err)

			broker := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 10}, nil)
			b.Cleanup(func() { require.NoError(b, broker.Close()) })
			forwarded, err := broker.Subscribe(ctx, "orders")
			require.NoError(b, err)
			fwd, err := forwarder.New(b.store, broker, forwarder.Config{PollInterval: time.Hour}, nil)
			require.NoError(b, err)
			ran := make(chan error, 1)
			go func() { ran <- fwd.Run(ctx) }()
			<-fwd.Running()

			b.inTx(false, "orders", named("rolled back"))
			require.Empty(b, b.listed(), "a rollback leaves nothing")
			b.inTx(true, "orders", identified("m1"), named("m2"))
			want := []delivery{
				{"m1", string(identified("m1").Payload), identified("m1").Metadata},
				{"m2", "payload of m2", message.Metadata{}},
			}
			byID := func(a, b delivery) int { return strings.Compare(a.id, b.id) }
			for name, from := range map[string]<-chan *message.Message{"subscriber": received, "forwarder": forwarded} {
				got := receive(b.T, from, 2)
				slices.SortFunc(got, byID)
				for i := range got {
					for key, value := range want[i].metadata {
						require.Equal(b, value, got[i].metadata.Get(key), "%s: %s", name, key)
					}
					require.Equal(b, want[i].id, got[i].id, name)
					require.Equal(b, want[i].payload, got[i].payload, name)
				}
			}
			stop()
			require.NoError(b, fwd.Close())
			<-ran
		})
	})

	t.Run("a message becomes the record that the publisher makes of it", func(t *testing.T) {
		each(t, func(b bench) {
			require.NoError(b, b.store.RegisterGroup(b.Context(), outmill.Registration{Group: "readers"}))
			dedup, ttl, later := named("deduplicated"), named("expires"), named("set to be later")
			outmill.SetDedupKey(dedup, "once")
			outmill.SetTimeToLive(ttl, time.Hour)
			outmill.SetDelay(later, time.Hour)
			watermills := named("delayed by its context")
			watermills.SetContext(delay.WithContext(b.Context(), delay.For(time.Hour)))
			messages := []*message.Message{identified("full"), dedup, ttl, later, watermills, message.NewMessage("empty", nil)}

			pub, err := publisher.New(b.store, publisher.Config{}, nil)
			require.NoError(b, err)
			defer func() { require.NoError(b, pub.Close()) }()
			require.NoError(b, pub.Publish("by.publisher", messages...))
			b.inTx(true, "by.adapter", messages...)
			b.inTx(true, "by.adapter", dedup)
			byTopic := map[string][]outmill.Record{}
			for _, r := range b.listed() {
				c := *r
				for _, at := range []*time.Time{&c.DueAt, &c.NextAttemptAt, &c.ExpiresAt} {
					if !at.IsZero() {
						*at = time.Unix(0, 0).Add(at.Sub(c.CreatedAt))
					}
				}
				c.ID, c.CreatedAt, c.Topic = outmill.WorkItemID{}, time.Time{}, ""
				byTopic[r.Topic] = append(byTopic[r.Topic], c)
			}
			require.Len(b, byTopic["by.publisher"], len(messages))
			require.ElementsMatch(b, byTopic["by.publisher"], byTopic["by.adapter"])
		})
	})

	t.Run("messages that cannot be appended are refused before anything is sent", func(t *testing.T) {
		each(t, func(b bench) {
			step, waiting, tooLong, badly := named("step"), named("waiting"), named("long"), named("badly")
			outmill.SetJoins(step, outmill.NewJoinID())
			outmill.SetWaitsFor(waiting, outmill.NewJoinID())
			outmill.SetKey(tooLong, strings.Repeat("k", 256))
			outmill.SetDueAt(badly, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))
			tx, err := b.db.BeginTx(b.Context(), nil)
			require.NoError(b, err)
			pub := b.publisher(tx, nil)
			for field, msg := range map[string]*message.Message{"joins": step, "joins ": waiting, "key": tooLong, `metadata "outmill_due_at"`: badly,
				"message": nil} {
				err := pub.Publish("orders", named("fine"), msg)
				var invalid *outmill.InvalidRecordError
				require.ErrorAs(b, err, &invalid, field)
				require.Equal(b, strings.TrimSpace(field), invalid.Field)
				require.Equal(b, 1, invalid.Index)
				if invalid.Field == "joins" {
					require.ErrorContains(b, err, "package publisher")
				}
			}
			require.NoError(b, pub.Publish("orders", named("good")), "the transaction goes on")
			require.NoError(b, pub.Publish("orders"), "to publish nothing is no error")
			require.NoError(b, tx.Commit())
			require.Len(b, b.listed(), 1)
		})
	})

	t.Run("the publishers log shows neither payload nor metadata", func(t *testing.T) {
		b := newBench(t, "pgx")
		logger := journal.New()
		msg := message.NewMessage("m1", []byte("S3CRET"))
		msg.Metadata.Set("card", "S3CRET")
		require.NoError(t, b.publisher(b.db, logger).Publish("orders", msg))
		require.NotEmpty(t, logger.Find("m1"))
		require.Empty(t, logger.Find("S3CRET"))
		require.Empty(t, logger.Find("533343524554"), "in hexadecimal")
	})

	t.Run("a publisher outside a transaction may initialize its schema which does nothing", func(t *testing.T) {
		b := newBench(t, "pgx")
		adapter, err := watermillsql.New(postgres.Config{})
		require.NoError(t, err)
		pub, err := sql.NewPublisher(b.db, sql.PublisherConfig{SchemaAdapter: adapter, AutoInitializeSchema: true}, nil)
		require.NoError(t, err)
		require.NoError(t, pub.Publish("orders", named("m1")))
		require.NoError(t, pub.Close())
		require.Len(t, b.listed(), 1)
	})

	t.Run("watermill sqls subscriber is sent to package subscriber", func(t *testing.T) {
		each(t, func(b bench) {
			adapter, err := watermillsql.New(postgres.Config{})
			require.NoError(b, err)
			query := adapter.SelectQuery("orders", "group", sql.DefaultPostgreSQLOffsetsAdapter{})
			tx, err := b.db.BeginTx(b.Context(), &stdsql.TxOptions{Isolation: adapter.SubscribeIsolationLevel()})
			require.NoError(b, err)
			defer func() { _ = tx.Rollback() }()
			err = read(b.Context(), tx, query)
			require.ErrorContains(b, err, watermillsql.ErrCannotRead.Error())
			require.ErrorContains(b, err, "subscriber")
			_, err = adapter.UnmarshalMessage(nil)
			require.ErrorIs(b, err, watermillsql.ErrCannotRead)
		})
	})
}

// read reads the rows of a query.
func read(ctx context.Context, from sql.ContextExecutor, query sql.Query) error {
	rows, err := from.QueryContext(ctx, query.Query, query.Args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
	}
	return rows.Err()
}

func TestAdapter(t *testing.T) {
	t.Parallel()

	t.Run("a config that makes no sense is refused", func(t *testing.T) {
		t.Parallel()
		_, err := watermillsql.New(postgres.Config{TablePrefix: "1"})
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	})
}
