package forwarder_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storekit"
)

var errAway = errors.New("connection refused")

// destination publishes to Watermill's Go channel, fails the messages that the test
// selects, and records the others.
type destination struct {
	real *gochannel.GoChannel

	mu      sync.Mutex
	verdict func(topic string, msg *message.Message) error
	arrived []arrival
	tries   []arrival
	calls   int
}

type arrival struct {
	topic string
	msg   *message.Message
}

// tester has the methods that testing.TB and rapid.T share.
type tester interface {
	require.TestingT
	Helper()
	Cleanup(f func())
	Context() context.Context
}

func newDestination(t tester) *destination {
	d := &destination{real: gochannel.NewGoChannel(gochannel.Config{}, nil)}
	t.Cleanup(func() { require.NoError(t, d.real.Close()) })
	return d
}

// judge sets the result of each further message; nil accepts all.
func (d *destination) judge(verdict func(topic string, msg *message.Message) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.verdict = verdict
}

func (d *destination) goAway() {
	d.judge(func(string, *message.Message) error { return errAway })
}

func (d *destination) comeBack() { d.judge(nil) }

// failOnly fails the messages with these ids.
func (d *destination) failOnly(err error, ids ...string) {
	d.judge(func(_ string, msg *message.Message) error {
		if slices.Contains(ids, msg.UUID) {
			return err
		}
		return nil
	})
}

func (d *destination) Publish(topic string, messages ...*message.Message) error {
	d.mu.Lock()
	verdict := d.verdict
	d.calls++
	for _, msg := range messages {
		d.tries = append(d.tries, arrival{topic, msg})
	}
	d.mu.Unlock()
	for _, msg := range messages {
		if verdict != nil {
			if err := verdict(topic, msg); err != nil {
				return err
			}
		}
		if err := d.real.Publish(topic, msg); err != nil {
			return err
		}
		d.mu.Lock()
		d.arrived = append(d.arrived, arrival{topic, msg})
		d.mu.Unlock()
	}
	return nil
}

func (d *destination) Close() error { return d.real.Close() }

// all returns the arrivals so far.
func (d *destination) all() []arrival {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.arrived)
}

func (d *destination) ids() []string { return uuidsOf(d.all()) }

func (d *destination) triedIDs() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return uuidsOf(d.tries)
}

func uuidsOf(arrivals []arrival) []string {
	ids := make([]string, len(arrivals))
	for i, a := range arrivals {
		ids[i] = a.msg.UUID
	}
	return ids
}

// withKey returns the ids of a key in the order of their first arrival.
func (d *destination) withKey(key string) []string {
	var ids []string
	for _, a := range d.all() {
		if a.msg.Metadata.Get(outmill.MetadataKey) == key && !slices.Contains(ids, a.msg.UUID) {
			ids = append(ids, a.msg.UUID)
		}
	}
	return ids
}

// requireArrived waits until exactly these messages have arrived, in any order, each once.
func (d *destination) requireArrived(tb testing.TB, ids ...string) {
	tb.Helper()
	d.waitFor(tb, len(ids))
	got := d.ids()
	slices.Sort(got)
	want := append([]string{}, ids...)
	slices.Sort(want)
	require.Equal(tb, want, got)
}

func (d *destination) waitFor(tb testing.TB, n int) {
	tb.Helper()
	require.Eventually(tb, func() bool { return len(d.all()) >= n }, patience, tick, "too few messages arrived: want %d", n)
}

func (d *destination) waitForTries(tb testing.TB, n int) {
	tb.Helper()
	require.Eventually(tb, func() bool { return len(d.triedIDs()) >= n }, patience, tick, "too few messages were tried: want %d", n)
}

// batchDestination is a storekit.BatchPublisher.
type batchDestination struct {
	*destination
	mu      sync.Mutex
	batches [][]string
	// around, if set, is called instead of publish and may call it.
	around func(ctx context.Context, batch []storekit.Outgoing, publish func() error) error
}

func newBatchDestination(t tester) *batchDestination {
	return &batchDestination{destination: newDestination(t)}
}

func (d *batchDestination) PublishBatch(ctx context.Context, batch []storekit.Outgoing) error {
	d.mu.Lock()
	ids := make([]string, len(batch))
	for i, out := range batch {
		ids[i] = out.Message.UUID
	}
	d.batches = append(d.batches, ids)
	around := d.around
	d.mu.Unlock()
	publish := func() error { return d.publish(ctx, batch) }
	if around != nil {
		return around(ctx, batch, publish)
	}
	return publish()
}

func (d *batchDestination) publish(ctx context.Context, batch []storekit.Outgoing) error {
	failed := &storekit.PublishError{Total: len(batch)}
	behind := map[string]error{}
	for i, out := range batch {
		key := out.Topic + "\x00" + out.Message.Metadata.Get(outmill.MetadataKey)
		err := behind[key]
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = d.Publish(out.Topic, out.Message)
		}
		if err == nil {
			continue
		}
		if !outmill.IsPermanent(err) && out.Message.Metadata.Get(outmill.MetadataKey) != "" {
			behind[key] = err
		}
		failed.Failed = append(failed.Failed, storekit.FailedMessage{Index: i, MessageID: out.Message.UUID, Topic: out.Topic, Err: err})
	}
	if len(failed.Failed) == 0 {
		return nil
	}
	return failed
}

func (d *batchDestination) wrap(around func(ctx context.Context, batch []storekit.Outgoing, publish func() error) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.around = around
}

func (d *batchDestination) allBatches() [][]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.batches)
}

// each runs the test with a publisher that takes batches and with one that
// does not.
func each(t *testing.T, test func(t *testing.T, pub message.Publisher, d *destination)) {
	t.Helper()
	t.Run("with a publisher of batches", func(t *testing.T) {
		t.Parallel()
		d := newBatchDestination(t)
		test(t, d, d.destination)
	})
	t.Run("with a publisher of raw records", func(t *testing.T) {
		t.Parallel()
		d := newBatchDestination(t)
		test(t, rawDestination{batchDestination: d}, d.destination)
	})
	t.Run("with a publisher of raw records, of which some come in batches", func(t *testing.T) {
		t.Parallel()
		d := newBatchDestination(t)
		test(t, rawDestination{d, true}, d.destination)
	})
	t.Run("with a plain publisher", func(t *testing.T) {
		t.Parallel()
		d := newDestination(t)
		test(t, d, d)
	})
}

var _ storekit.BatchPublisher = (*batchDestination)(nil)

// rawDestination takes records. If it alternates, the forwarders of the tests claim every second of its batches raw, and handle some record
// by record.
type rawDestination struct {
	*batchDestination
	alternates bool
}

func (d rawDestination) PublishesRaw(message.Publisher) func(ctx context.Context, batch []roles.RawRecord) error {
	return func(ctx context.Context, batch []roles.RawRecord) error {
		return d.PublishBatch(ctx, messagesOf(batch))
	}
}

func messagesOf(batch []roles.RawRecord) []storekit.Outgoing {
	messages := make([]storekit.Outgoing, len(batch))
	for i, r := range batch {
		messages[i] = storekit.Outgoing{Topic: r.Topic, Message: storekit.RawMessage(r)}
	}
	return messages
}

// alternating is a store of whose claims every second one is raw.
type alternating struct {
	*sqlite.Store
	claims atomic.Int64
}

func (a *alternating) RawClaims(outmill.Queue) roles.RawClaims {
	return func(ctx context.Context, req outmill.ClaimRequest) ([]roles.RawRecord, error) {
		if a.claims.Add(1)%2 == 0 {
			return a.ClaimRaw(ctx, req)
		}
		return roles.ClaimsOf(a)(ctx, req)
	}
}

// alternate returns the store with claims that alternate, for a publisher that takes records.
func alternate(store outmill.Queue, pub message.Publisher) outmill.Queue {
	if file, is := store.(*sqlite.Store); is && alternates(pub) {
		return &alternating{Store: file}
	}
	return store
}

func alternateBatches(fwd *forwarder.Forwarder, pub message.Publisher) {
	if alternates(pub) {
		forwarder.AlternateBatches(fwd)
	}
}

// alternates reports whether a publisher takes records, and is not always to get them in batches.
func alternates(pub message.Publisher) bool {
	if d, is := pub.(rawDestination); is {
		return d.alternates
	}
	_, raw := pub.(storekit.RawPublisher)
	return raw
}
