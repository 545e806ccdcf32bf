package publisher

import (
	"context"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

var _ message.Publisher = (*Publisher)(nil)

// Publisher appends messages to a store. It is safe for concurrent use, also by
// several handlers of a router.
type Publisher struct {
	writer outmill.Writer
	cfg    Config
	maker  *storekit.RecordMaker
	log    watermill.LoggerAdapter
	// warned says that the warning of a publish outside a transaction was logged.
	warned sync.Once
	// ignored logs the first delay that is data.
	ignored sync.Once
}

// New makes a publisher for a store. The store logs each append with its own logger. The
// publisher logs two lines at most: a warning of the first message that is published outside a
// transaction, unless Config.AllowNoTx is set, and one of the first delay that it ignores, see
// Config.DelaysInMetadata. A nil logger logs nothing.
func New(writer outmill.Writer, cfg Config, logger watermill.LoggerAdapter) (*Publisher, error) {
	if outmill.IsNil(writer) {
		return nil, fmt.Errorf("%w: publisher.New: the store is nil", outmill.ErrInvalidConfig)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	maker, err := storekit.NewRecordMaker(cfg.DelaysInMetadata)
	if err != nil {
		return nil, err
	}
	return &Publisher{
		writer: writer,
		cfg:    cfg,
		maker:  maker,
		log:    storekit.LogWith(logger, watermill.LogFields{"store": writer.Name()}),
	}, nil
}

// Publish appends the messages to the topic: all of them or, with an error,
// none. It takes part in the transaction that the messages' contexts carry.
//
// Errors: outmill.ErrInvalidRecord (with the message, the field and the reason),
// ErrMixedTx, ErrForeignTx, ErrInvalidTx, ErrNoTx, ErrClosed, ErrSchemaMissing, or the
// database's error, wrapped. Publish neither changes nor retains the messages.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	return view{publisher: p}.Publish(topic, messages...)
}

// WithContext returns a view of the publisher that publishes with the transaction and the
// Watermill delay of ctx; those of a message's own context override them. The view ignores
// the cancellation of ctx, as it does for message contexts. The view's Close does nothing.
func (p *Publisher) WithContext(ctx context.Context) message.Publisher {
	return view{p, ctx}
}

// Close does nothing: what Publish has returned for is stored. The publisher works until its
// store is closed; after that Publish returns outmill.ErrClosed. The router closes the publisher of
// a handler that stops, and other handlers with this publisher may still run and publish.
func (*Publisher) Close() error { return nil }

func (p *Publisher) publish(base context.Context, topic string, messages []*message.Message) error {
	if err := storekit.CheckTopic(topic); err != nil {
		return fmt.Errorf("outmill: publish: %w", err)
	}
	appended, err := p.append(base, topic, messages)
	if err != nil {
		return fmt.Errorf("outmill: publish to %q: %w", topic, err)
	}
	issue(base, messages, appended)
	p.report(topic, messages, appended)
	return nil
}

func (p *Publisher) append(base context.Context, topic string, messages []*message.Message) ([]*outmill.Record, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	appended, err := p.records(base, topic, messages)
	if err != nil {
		return nil, err
	}
	txCtx, err := p.transaction(base, messages)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(txCtx), p.cfg.PublishTimeout)
	defer cancel()
	err = p.writer.Append(ctx, appended...)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("not finished within publisher.Config.PublishTimeout (%s): %w", p.cfg.PublishTimeout, err)
	}
	return appended, err
}

// report calls OnDuplicate for each duplicate.
func (p *Publisher) report(topic string, messages []*message.Message, appended []*outmill.Record) {
	if p.cfg.OnDuplicate == nil {
		return
	}
	for i, rec := range appended {
		if rec.Duplicate {
			p.cfg.OnDuplicate(topic, messages[i])
		}
	}
}

// view publishes for a publisher, but does not close it.
type view struct {
	publisher *Publisher
	// ctx is the context of WithContext; nil without one.
	ctx context.Context
}

func (v view) Publish(topic string, messages ...*message.Message) error {
	return v.publisher.publish(v.ctx, topic, messages)
}

func (v view) Close() error { return nil }
