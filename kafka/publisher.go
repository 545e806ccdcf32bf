package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Publisher publishes to Kafka in batches. It implements message.Publisher and
// storekit.BatchPublisher and is safe for concurrent use; concurrent calls share requests.
// Make one with NewPublisher and share it.
type Publisher struct {
	config Config
	lane   *lane

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
	finish sync.Once
}

var (
	_ storekit.BatchPublisher = (*Publisher)(nil)
	_ storekit.Pinger         = (*Publisher)(nil)
)

// NewPublisher makes a publisher. An error matches outmill.ErrInvalidConfig and names every field that is invalid. A nil logger logs
// nothing.
//
// It does not connect, so brokers may be down until the first Publish. Ping reports whether
// they can be reached. The caller must close the publisher.
func NewPublisher(config Config, logger watermill.LoggerAdapter) (*Publisher, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	config.Brokers = slices.Clone(config.Brokers)
	if outmill.IsNil(logger) {
		logger = watermill.NopLogger{}
	}
	l, err := newLane(config, logger)
	if err != nil {
		return nil, err
	}
	return &Publisher{config: config, lane: l}, nil
}

// Publish publishes the messages to the topic. It returns when each message is acknowledged
// by the brokers (acks=all) or has failed; *PublishError lists the failed messages, and the
// others were delivered. If brokers do not answer, it returns within three times
// Config.DeliveryTimeout: once to look up a new topic, once to wait for earlier messages,
// once to deliver. See PublishBatch for order and errors.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	batch := make([]storekit.Outgoing, len(messages))
	for i, msg := range messages {
		batch[i] = storekit.Outgoing{Topic: topic, Message: msg}
	}
	return p.PublishBatch(context.Background(), batch)
}

// PublishBatch implements storekit.BatchPublisher. The errors in the
// *PublishError that it returns are
//
//   - outmill.Permanent for a message that no retry can deliver: too large,
//     refused by the broker or by the marshaler, nil, or for a topic with a name
//     that Kafka does not allow;
//   - outmill.ErrTopicUnavailable for a topic that is unknown or forbidden;
//   - any other error: the brokers failed.
//
// A refused message fails alone, and an unavailable topic fails only its own messages. A
// call after Close returns outmill.ErrClosed.
//
// If ctx ends before the brokers have answered, the messages fail but may still be
// delivered. The publisher reads their payloads until then, at most for
// Config.DeliveryTimeout. Messages that this publisher sends later arrive after them.
func (p *Publisher) PublishBatch(ctx context.Context, batch []storekit.Outgoing) error {
	return p.publish(ctx, len(batch), func(m *marshalling, i int, d *delivery) error {
		out := batch[i]
		d.topic = out.Topic
		if out.Message != nil {
			d.messageID = out.Message.UUID
		}
		return m.record(&d.record, out.Topic, storekit.ForBroker(out.Message, reserved))
	})
}

// publish publishes n messages. marshal makes the record of one, and sets its topic and messageID in any case.
func (p *Publisher) publish(ctx context.Context, n int, marshal func(m *marshalling, i int, d *delivery) error) error {
	if err := p.enter(); err != nil {
		return err
	}
	defer p.calls.Done()
	if ctx == nil {
		ctx = context.Background()
	}
	deliveries, failures := p.prepare(n, marshal)
	known, unknown := p.split(deliveries)
	var late []failure
	var asking sync.WaitGroup
	if len(unknown) > 0 {
		asking.Go(func() { late = p.askAndDeliver(ctx, unknown) })
	}
	failures = append(failures, p.deliver(ctx, known)...)
	asking.Wait()
	return publishError(n, append(failures, late...))
}

// MaxMessageBytes implements storekit.SizeLimited. It is 0 with a marshaler of the user's own, which may make a message smaller.
func (p *Publisher) MaxMessageBytes() int {
	if !p.isUsual() {
		return 0
	}
	return p.config.MaxMessageBytes
}

// isUsual reports whether the marshaler is that of this package.
func (p *Publisher) isUsual() bool { return p.config.Marshaler == DefaultMarshaler{} }

// Ping returns an error if no broker can be reached, or if the brokers refuse this
// publisher. It ends with ctx.
func (p *Publisher) Ping(ctx context.Context) error {
	if err := p.enter(); err != nil {
		return err
	}
	defer p.calls.Done()
	if ctx == nil {
		ctx = context.Background()
	}
	if err := p.lane.currentClient().Ping(ctx); err != nil {
		return unreachableError(p.config.Brokers, err)
	}
	return nil
}

// Close waits for the calls in progress, and for messages that were still being sent when
// the contexts of their calls ended. Then it closes the connections. Later calls fail with
// outmill.ErrClosed. Close may be called more than once, and then waits as well.
func (p *Publisher) Close() error {
	if p == nil || p.lane == nil {
		return nil
	}
	p.finish.Do(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		p.calls.Wait()
		p.lane.close()
	})
	return nil
}

func (p *Publisher) enter() error {
	if p == nil || p.lane == nil {
		return fmt.Errorf("%w: kafka.Publisher: make it with kafka.NewPublisher", outmill.ErrInvalidConfig)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("kafka: publisher: %w", outmill.ErrClosed)
	}
	p.calls.Add(1)
	return nil
}

// prepare marshals the messages. Messages that cannot be marshalled fail.
func (p *Publisher) prepare(n int, marshal func(m *marshalling, i int, d *delivery) error) (deliveries []*delivery, failures []failure) {
	deliveries = make([]*delivery, 0, n)
	space := make([]delivery, n)
	m := newMarshalling(p.config.Marshaler, n)
	for i := range space {
		d := &space[i]
		d.index = i
		err := marshal(m, i, d)
		if err == nil {
			d.topic, d.size = d.record.Topic, recordSize(&d.record)
			deliveries = append(deliveries, d)
			continue
		}
		failures = append(failures, failed(d, outmill.Permanent(err)))
	}
	return deliveries, failures
}

// split separates the deliveries whose topic is known to exist from the others.
func (p *Publisher) split(deliveries []*delivery) (known, unknown []*delivery) {
	isKnown := map[string]bool{}
	known = make([]*delivery, 0, len(deliveries))
	k, last := false, ""
	for _, d := range deliveries {
		if d.topic != last {
			var asked bool
			if k, asked = isKnown[d.topic]; !asked {
				k = p.lane.topics.isKnown(d.topic)
				isKnown[d.topic] = k
			}
			last = d.topic
		}
		if k {
			known = append(known, d)
		} else {
			unknown = append(unknown, d)
		}
	}
	return known, unknown
}

// askAndDeliver asks the brokers for the topics and delivers the messages of those that
// exist.
func (p *Publisher) askAndDeliver(ctx context.Context, deliveries []*delivery) (failures []failure) {
	asked := map[string]error{}
	for _, d := range deliveries {
		asked[d.topic] = nil
	}
	verdicts := p.lane.topics.check(ctx, slices.Collect(maps.Keys(asked)))
	var found []*delivery
	for _, d := range deliveries {
		if err := verdicts[d.topic]; err != nil {
			failures = append(failures, failed(d, err))
		} else {
			found = append(found, d)
		}
	}
	return append(failures, p.deliver(ctx, found)...)
}

// deliver sends deliveries in parts, one after the other. After an outage in one part it
// sends no further part, and after the failure of a topic no further message of that topic,
// because later messages of a key must not pass earlier ones.
func (p *Publisher) deliver(ctx context.Context, deliveries []*delivery) (failures []failure) {
	var trouble error
	lost := map[string]error{}
	for _, part := range parts(deliveries, p.config.MaxBufferedRecords, p.config.MaxBufferedBytes) {
		sent := make([]*delivery, 0, len(part))
		for _, d := range part {
			if err := cmp.Or(trouble, lost[d.topic]); err != nil {
				failures = append(failures, failed(d, err))
			} else {
				sent = append(sent, d)
			}
		}
		for _, f := range p.deliverPart(ctx, sent) {
			failures = append(failures, f)
			switch {
			case outmill.IsPermanent(f.reason):
			case errors.Is(f.reason, outmill.ErrTopicUnavailable):
				lost[f.topic] = f.reason
			default:
				trouble = f.reason
			}
		}
	}
	return failures
}

func (p *Publisher) deliverPart(ctx context.Context, deliveries []*delivery) []failure {
	if len(deliveries) == 0 {
		return nil
	}
	if ctx.Err() != nil {
		return failAll(deliveries, endedError(ctx, false))
	}
	j := newJob(deliveries)
	p.lane.submit(j)
	patience := time.NewTimer(p.config.DeliveryTimeout)
	defer patience.Stop()
	for {
		select {
		case <-j.done:
			return j.failures(nil)
		case <-ctx.Done():
			sent := !p.lane.withdraw(j)
			return j.failures(endedError(ctx, sent))
		case <-patience.C:
			if p.lane.withdraw(j) {
				return failAll(deliveries,
					fmt.Errorf("kafka: not sent: the brokers have not answered for earlier messages within kafka.Config.DeliveryTimeout (%s)",
						p.config.DeliveryTimeout))
			}
		}
	}
}

func failAll(deliveries []*delivery, err error) []failure {
	failures := make([]failure, len(deliveries))
	for i, d := range deliveries {
		failures[i] = failed(d, err)
	}
	return failures
}

func publishError(total int, failures []failure) error {
	if len(failures) == 0 {
		return nil
	}
	slices.SortFunc(failures, func(a, b failure) int { return cmp.Compare(a.index, b.index) })
	e := &storekit.PublishError{Total: total, Failed: make([]storekit.FailedMessage, len(failures))}
	for i, f := range failures {
		e.Failed[i] = storekit.FailedMessage{Index: f.index, MessageID: f.messageID, Topic: f.topic, Err: f.reason}
	}
	return e
}
