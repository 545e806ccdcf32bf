package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	wforwarder "github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
)

const (
	patience = time.Minute
	tick     = 5 * time.Millisecond
)

// world is a service's database with watermill-sql's tables and an outbox.
type world struct {
	url   string
	db    *sql.DB
	store *postgres.Store
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldAt(t, postgrestest.Database(t))
}

func newWorldAt(t *testing.T, address string) *world {
	t.Helper()
	w := &world{url: address}
	var err error
	w.db, err = openSource(w.url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.db.Close()) })
	w.store, err = postgres.Open(context.WithoutCancel(t.Context()), w.url, postgres.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.store.Close()) })
	require.NoError(t, w.store.Ensure(t.Context()))
	return w
}

// sourceArgs are the tool's arguments that all tests share.
func (w *world) sourceArgs(args ...string) []string {
	return append([]string{"-source", w.url, "-idle", "100ms", "-progress", "50ms"}, args...)
}

func (w *world) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	_, err := w.db.ExecContext(t.Context(), statement, args...)
	require.NoError(t, err)
}

// awaitReadable waits until a subscriber may read all committed messages of the table.
// watermill-sql leaves out rows that are not older than every open transaction of the server,
// which other tests use too. So a batch may be smaller than the test wants.
func (w *world) awaitReadable(t *testing.T, table string) {
	t.Helper()
	require.Eventually(t, func() bool {
		var waiting int
		err := w.db.QueryRowContext(t.Context(),
			`SELECT count(*) FROM "`+table+`" WHERE transaction_id >= pg_snapshot_xmin(pg_current_snapshot())`).Scan(&waiting)
		require.NoError(t, err)
		return waiting == 0
	}, patience, tick, "an older transaction stays open")
}

// createLog creates the tables of a topic as watermill-sql's subscriber does,
// with the offset of a consumer group that has read nothing yet.
func (w *world) createLog(t *testing.T, topic, group string) {
	t.Helper()
	sub, err := wsql.NewSubscriber(w.db, wsql.SubscriberConfig{
		ConsumerGroup: group, SchemaAdapter: oldSchema, OffsetsAdapter: wsql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
	}, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	messages, err := sub.Subscribe(ctx, topic)
	require.NoError(t, err)
	cancel()
	for range messages {
		t.Error("a message in an empty table")
	}
	require.NoError(t, sub.Close())
}

// createQueue creates a table as PostgreSQLQueueSchema of watermill-sql 4 does.
func (w *world) createQueue(t *testing.T, topic string) {
	t.Helper()
	w.exec(t, `CREATE TABLE "watermill_`+topic+`" (
		"offset" SERIAL PRIMARY KEY,
		"uuid" VARCHAR(36) NOT NULL,
		"payload" JSON DEFAULT NULL,
		"metadata" JSON DEFAULT NULL,
		"acked" BOOLEAN NOT NULL DEFAULT FALSE,
		"created_at" TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT CURRENT_TIMESTAMP)`)
}

var oldSchema = wsql.DefaultPostgreSQLSchema{}

// writerToQueue inserts as PostgreSQLQueueSchema does.
type writerToQueue struct{ wsql.DefaultPostgreSQLSchema }

func (writerToQueue) InsertQuery(topic string, msgs message.Messages) (wsql.Query, error) {
	q, err := oldSchema.InsertQuery(topic, msgs)
	q.Query = strings.NewReplacer(", transaction_id", "", ",pg_current_xact_id()", "").Replace(q.Query)
	return q, err
}

// in runs fn in a transaction, and commits if fn returns true.
func (w *world) in(t testing.TB, fn func(tx *sql.Tx) bool) {
	tx, err := w.db.BeginTx(context.WithoutCancel(t.Context()), nil)
	if err != nil {
		t.Error(err)
		return
	}
	if fn(tx) {
		err = tx.Commit()
	} else {
		err = tx.Rollback()
	}
	if err != nil {
		t.Error(err)
	}
}

func publishOld(t testing.TB, tx *sql.Tx, schema wsql.SchemaAdapter, topic string, msgs ...*message.Message) {
	pub, err := wsql.NewPublisher(tx, wsql.PublisherConfig{SchemaAdapter: schema}, nil)
	if err == nil {
		err = pub.Publish(topic, msgs...)
	}
	if err != nil {
		t.Error(err)
	}
}

func publishEnveloped(t testing.TB, tx *sql.Tx, forwarderTopic, topic string, msgs ...*message.Message) {
	pub, err := wsql.NewPublisher(tx, wsql.PublisherConfig{SchemaAdapter: oldSchema}, nil)
	if err == nil {
		err = wforwarder.NewPublisher(pub, wforwarder.PublisherConfig{ForwarderTopic: forwarderTopic}).Publish(topic, msgs...)
	}
	if err != nil {
		t.Error(err)
	}
}

// writePlain publishes each message to a topic of watermill-sql in a
// transaction of its own.
func (w *world) writePlain(t *testing.T, topic string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		w.in(t, func(tx *sql.Tx) bool { publishOld(t, tx, oldSchema, topic, msg(id)); return true })
	}
}

func (w *world) writeEnveloped(t *testing.T, forwarderTopic, topic string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		w.in(t, func(tx *sql.Tx) bool { publishEnveloped(t, tx, forwarderTopic, topic, msg(id)); return true })
	}
}

func (w *world) writeQueue(t *testing.T, topic string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		w.in(t, func(tx *sql.Tx) bool { publishOld(t, tx, writerToQueue{}, topic, msg(id)); return true })
	}
}

// msg returns a message whose key is the part of its id before the /.
func msg(id string) *message.Message {
	m := message.NewMessage(id, []byte(`{"secret of":"`+id+`"}`))
	key, _, _ := strings.Cut(id, "/")
	m.Metadata.Set("customer", key)
	return m
}

func ids(key string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s/%04d", key, i)
	}
	return all
}

// inOutbox are what was appended, in the records and in the log.
const inOutbox = `(SELECT message_id, topic, seq FROM outmill.records UNION ALL SELECT message_id, topic, pos FROM outmill.log) AS r`

// outbox returns the message ids of the outbox in the order of their appends.
func (w *world) outbox(t testing.TB, topic string) []string {
	t.Helper()
	return ask(t, w.db, `SELECT message_id FROM `+inOutbox+` WHERE topic = $1 ORDER BY seq`, topic)
}

func ask(t testing.TB, db *sql.DB, query string, args ...any) []string {
	t.Helper()
	found, err := texts(context.WithoutCancel(t.Context()), db, query, args...)
	require.NoError(t, err)
	return found
}

func ofKey(all []string, key string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(id string) bool { return !strings.HasPrefix(id, key+"/") })
}

// says collects the output of a tool.
type says struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *says) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *says) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// tool is a running tool.
type tool struct {
	says  *says
	stop  context.CancelFunc
	ended chan error
}

func start(t *testing.T, args []string) *tool {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	tl := &tool{says: &says{}, stop: cancel, ended: make(chan error, 1)}
	go func() {
		tl.ended <- run(ctx, args, tl.says, tl.says)
		close(tl.ended)
	}()
	t.Cleanup(func() { cancel(); <-tl.ended })
	return tl
}

// runOnce runs the tool until it stops by itself.
func runOnce(t *testing.T, args []string) (string, error) {
	t.Helper()
	tl := start(t, append(args, "-once"))
	select {
	case err := <-tl.ended:
		return tl.says.String(), err
	case <-time.After(patience):
		t.Fatalf("the tool does not end: %s", tl.says)
		return "", nil
	}
}

func requireReport(t *testing.T, output, want string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(output), "\n")
	require.Contains(t, lines[len(lines)-1], want+" seconds=", output)
	require.NotContains(t, output, "secret", "no payload is ever shown")
}

// otherURL returns another URL of the same database.
func otherURL(t *testing.T, w *world) string {
	t.Helper()
	u, err := url.Parse(w.url)
	require.NoError(t, err)
	query := u.Query()
	query.Set("application_name", "other")
	u.RawQuery = query.Encode()
	return u.String()
}
