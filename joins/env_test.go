package joins_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

const (
	// patience limits the wait for an event that must happen.
	patience = 5 * time.Minute
	tick     = 5 * time.Millisecond

	transform = "etl.transform"
	alert     = "etl.alert"
)

// extracts are the topics of steps.
var extracts = []string{"extract.customers", "extract.orders", "extract.products"}

// Payloads of steps, for the handler work.
const (
	good       = "good"
	bad        = "bad"
	badAtFirst = "bad at first"
)

var errBroken = errors.New("the source is broken")

// work is a handler of steps; the payload decides its result.
func work(msg *message.Message) error {
	delivery, _ := outmill.Delivery(msg.Context())
	switch string(msg.Payload) {
	case bad:
		return outmill.Permanent(errBroken)
	case badAtFirst:
		if delivery.Attempt == 1 {
			return errBroken
		}
	}
	return nil
}

// plant is a store with a publisher and a router.
type plant struct {
	*sqlite.Store
	pub    *publisher.Publisher
	router *message.Router
	sub    *subscriber.Subscriber
}

func newStore(t *testing.T) *sqlite.Store {
	t.Helper()
	file := "file:" + filepath.Join(t.TempDir(), "outbox.db") + "?_pragma=synchronous(OFF)"
	store, err := sqlite.Open(t.Context(), file, sqlite.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	return store
}

// quick is a configuration with short retry waits.
func quick() subscriber.Config {
	return subscriber.Config{
		Retry:        outmill.RetryPolicy{MaxAttempts: 3, InitialInterval: time.Millisecond, MaxInterval: time.Millisecond},
		PollInterval: 100 * time.Millisecond,
		CloseTimeout: patience,
	}
}

func newPlant(t *testing.T) *plant {
	t.Helper()
	store := newStore(t)
	return plantOn(t, store, store, quick())
}

// plantOn reads through queue, which is the store or a wrapper of it.
func plantOn(t *testing.T, store *sqlite.Store, queue outmill.Queue, cfg subscriber.Config) *plant {
	t.Helper()
	pub, err := publisher.New(store, publisher.Config{}, nil)
	require.NoError(t, err)
	sub, err := subscriber.New(queue, cfg, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, nil)
	require.NoError(t, err)
	return &plant{Store: store, pub: pub, router: router, sub: sub}
}

func (p *plant) handle(topic string, handle message.NoPublishHandlerFunc) {
	p.router.AddConsumerHandler(topic, topic, p.sub, handle).AddMiddleware(subscriber.KeepError)
}

// listen returns the messages of a topic.
func (p *plant) listen(topic string) <-chan *message.Message {
	arrived := make(chan *message.Message, 1000)
	p.handle(topic, func(msg *message.Message) error {
		arrived <- msg.Copy()
		return nil
	})
	return arrived
}

// extract adds work as the handler of the steps.
func (p *plant) extract() {
	for _, topic := range extracts {
		p.handle(topic, work)
	}
}

// run runs the router, with the handler of joins, until the test ends.
func (p *plant) run(t *testing.T, changes ...func(*joins.Config)) *message.Handler {
	t.Helper()
	cfg := joins.Config{Store: p.Store}
	for _, change := range changes {
		change(&cfg)
	}
	added, err := joins.AddHandlers(p.router, p.sub, cfg)
	require.NoError(t, err)
	p.start(t)
	return added
}

func (p *plant) start(t *testing.T) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- p.router.Run(context.Background()) }()
	<-p.router.Running()
	t.Cleanup(func() {
		require.NoError(t, p.router.Close())
		require.NoError(t, <-ended)
	})
}

// inTx runs fn in a transaction and commits it.
func (p *plant) inTx(t *testing.T, fn func(ctx context.Context)) {
	t.Helper()
	require.NoError(t, p.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
		fn(ctx)
		return nil
	}))
}

// publishSteps publishes one step for each payload, to the topics of extracts
// in turn.
func (p *plant) publishSteps(t *testing.T, ctx context.Context, id outmill.JoinID, payloads ...string) {
	t.Helper()
	for i, payload := range payloads {
		require.NoError(t, p.pub.WithContext(ctx).Publish(extracts[i%len(extracts)], step(payload, id)))
	}
}

// etl runs a whole job in one transaction: the join, its steps, the wait with
// OnComplete to transform and OnFail to alert.
func (p *plant) etl(t *testing.T, join roles.Join, change func(*joins.WaitRequest), payloads ...string) outmill.JoinID {
	t.Helper()
	var id outmill.JoinID
	p.inTx(t, func(ctx context.Context) {
		id = start(t, ctx, p.Store, join)
		p.publishSteps(t, ctx, id, payloads...)
		wait := waitFor(id)
		if change != nil {
			change(&wait)
		}
		require.NoError(t, joins.Wait(ctx, p.pub, wait))
	})
	return id
}

// of returns a join with this number of steps, for customer 42.
func of(steps int) roles.Join {
	return roles.Join{GroupingKey: "42", ExpectedSteps: steps, Metadata: map[string]string{"type": "etl"}}
}

func start(t *testing.T, ctx context.Context, store roles.Joins, join roles.Join) outmill.JoinID {
	t.Helper()
	id, err := joins.Start(ctx, store, join)
	require.NoError(t, err)
	require.False(t, id.IsZero())
	return id
}

func step(payload string, ids ...outmill.JoinID) *message.Message {
	msg := message.NewMessage(watermill.NewUUID(), []byte(payload))
	joins.AddStep(msg, ids...)
	return msg
}

func waitFor(id outmill.JoinID) joins.WaitRequest {
	return joins.WaitRequest{
		Join:       id,
		OnComplete: joins.Next{Topic: transform, Message: message.NewMessage("", []byte("all is there"))},
		OnFail:     joins.Next{Topic: alert, Message: message.NewMessage("", []byte("something is missing"))},
	}
}

func failIfAnyStepFailed(wait *joins.WaitRequest) { wait.FailIfAnyStepFailed = true }

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// requireSettled waits until no record is left, and requires that no message arrived on the
// quiet channels.
func (p *plant) requireSettled(t *testing.T, quiet ...<-chan *message.Message) {
	t.Helper()
	var left []*outmill.Record
	defer func() {
		for _, r := range left {
			t.Logf("left: %s, %s, attempts %d, %q", r.Topic, r.Status, r.Attempts, r.LastError)
		}
	}()
	require.Eventually(t, func() bool {
		left = p.records(t, "", "")
		return len(left) == 0
	}, patience, tick, "records are left")
	for _, arrived := range quiet {
		require.Empty(t, arrived)
	}
}

func (p *plant) records(t *testing.T, topic string, status outmill.Status) []*outmill.Record {
	t.Helper()
	found, err := p.List(t.Context(), outmill.ListQuery{Topic: topic, Status: status, Limit: 1000, Content: true})
	require.NoError(t, err)
	return found
}

// requireDead waits until the only record of the topic is dead, deletes it and returns it.
func (p *plant) requireDead(t *testing.T, topic string) *outmill.Record {
	t.Helper()
	var found []*outmill.Record
	require.Eventually(t, func() bool {
		found = p.records(t, topic, outmill.StatusDead)
		return len(found) == 1
	}, patience, tick, "no single dead record in %s", topic)
	return found[0]
}

func (p *plant) clear(t *testing.T, records ...*outmill.Record) {
	t.Helper()
	for _, rec := range records {
		n, err := p.Delete(t.Context(), rec.ID)
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
}

func (p *plant) join(t *testing.T, id outmill.JoinID) *roles.Join {
	t.Helper()
	join, err := p.GetJoin(t.Context(), id)
	require.NoError(t, err)
	return join
}

// requireJoinOf requires that the message has the metadata of the join.
func requireJoinOf(t *testing.T, msg *message.Message, id outmill.JoinID, status roles.JoinStatus, reason string, expected, completed,
	failed string) {
	t.Helper()
	require.Equal(t, id.String(), msg.Metadata[joins.MetadataJoinID])
	require.Equal(t, string(status), msg.Metadata[joins.MetadataStatus])
	require.Equal(t, reason, msg.Metadata[joins.MetadataReason])
	require.Equal(t, []string{expected, completed, failed}, []string{
		msg.Metadata[joins.MetadataExpectedSteps],
		msg.Metadata[joins.MetadataCompletedSteps],
		msg.Metadata[joins.MetadataFailedSteps],
	}, "expected, completed and failed steps")
}
