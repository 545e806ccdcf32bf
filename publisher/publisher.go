package publisher

import (
	"context"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

var _ message.Publisher = (*Publisher)(nil)

// Publisher appends messages to a store. It is safe for concurrent use. It
// does not close the store.
type Publisher struct {
	writer outmill.Writer
	cfg    Config
	log    watermill.LoggerAdapter
	delays *delays

	// calls is held for reading by each call under way.
	calls  sync.RWMutex
	closed bool
}

// New makes a publisher over a store. A nil logger logs nothing.
func New(writer outmill.Writer, cfg Config, logger watermill.LoggerAdapter) (*Publisher, error) {
	if outmill.IsNil(writer) {
		return nil, fmt.Errorf("%w: publisher.New: the store is nil", outmill.ErrInvalidConfig)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	delays, err := newDelays()
	if err != nil {
		return nil, err
	}
	return &Publisher{
		writer: writer,
		cfg:    cfg,
		log:    logger.With(watermill.LogFields{"store": writer.Name()}),
		delays: delays,
	}, nil
}

// Publish appends the messages to the topic: all of them or, with an error,
// none. It takes part in the transaction that the messages' contexts carry.
//
// Errors: outmill.ErrInvalidRecord (which message and field, and why),
// ErrMixedTx, ErrForeignTx, ErrNoTx, ErrClosed, ErrSchemaMissing, or the
// database's own, wrapped. The messages are not changed and not retained.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	return p.publish(nil, topic, messages)
}

// WithContext returns a view of the publisher that publishes in the
// transaction of ctx whatever messages' own contexts do not say otherwise. Its
// Close does nothing.
func (p *Publisher) WithContext(ctx context.Context) message.Publisher {
	return view{p, ctx}
}

// Shared returns a view of the publisher whose Close does nothing. The router
// closes a handler's publisher when that handler stops; give it this one where
// others go on to use the publisher.
func (p *Publisher) Shared() message.Publisher { return view{p, nil} }

// Close waits for the calls under way and refuses later ones with
// outmill.ErrClosed. It may be called more than once.
func (p *Publisher) Close() error {
	p.calls.Lock()
	defer p.calls.Unlock()
	p.closed = true
	return nil
}

func (p *Publisher) publish(base context.Context, topic string, messages []*message.Message) error {
	p.calls.RLock()
	defer p.calls.RUnlock()
	if p.closed {
		return fmt.Errorf("outmill: publish to %q: %w", topic, outmill.ErrClosed)
	}
	if len(messages) == 0 {
		return nil
	}
	records, err := p.records(base, topic, messages)
	if err != nil {
		return fmt.Errorf("outmill: publish to %q: %w", topic, err)
	}
	txCtx, err := p.transaction(base, messages)
	if err != nil {
		return fmt.Errorf("outmill: publish to %q: %w", topic, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(txCtx), p.cfg.PublishTimeout)
	defer cancel()
	if err := p.writer.Append(ctx, records...); err != nil {
		return fmt.Errorf("outmill: publish to %q: %w", topic, err)
	}
	p.report(topic, messages, records)
	return nil
}

func (p *Publisher) report(topic string, messages []*message.Message, records []*outmill.Record) {
	fields := watermill.LogFields{"topic": topic, "count": len(records)}
	if len(records) == 1 {
		fields["message_uuid"] = records[0].MessageID
		fields["correlation_id"] = records[0].CorrelationID
	}
	p.log.Info("Appended messages", fields)
	if p.cfg.OnDuplicate == nil {
		return
	}
	for i, rec := range records {
		if rec.Duplicate {
			p.cfg.OnDuplicate(topic, messages[i])
		}
	}
}

// view is a publisher for a context, or one that must not be closed.
type view struct {
	publisher *Publisher
	ctx       context.Context
}

func (v view) Publish(topic string, messages ...*message.Message) error {
	return v.publisher.publish(v.ctx, topic, messages)
}

func (v view) Close() error { return nil }
