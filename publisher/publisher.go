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

// Publisher appends messages to a store. It is safe for concurrent use. It
// does not close the store.
type Publisher struct {
	writer outmill.Writer
	cfg    Config
	maker  *storekit.RecordMaker

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
}

// New makes a publisher over a store. The store logs each append, with the logger
// that it was made with; the publisher has nothing to add, and its logger, which
// may be nil, is there because Watermill's constructors have one.
func New(writer outmill.Writer, cfg Config, _ watermill.LoggerAdapter) (*Publisher, error) {
	if outmill.IsNil(writer) {
		return nil, fmt.Errorf("%w: publisher.New: the store is nil", outmill.ErrInvalidConfig)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	maker, err := storekit.NewRecordMaker()
	if err != nil {
		return nil, err
	}
	return &Publisher{
		writer: writer,
		cfg:    cfg,
		maker:  maker,
	}, nil
}

// Publish appends the messages to the topic: all of them or, with an error,
// none. It takes part in the transaction that the messages' contexts carry.
//
// Errors: outmill.ErrInvalidRecord (which message and field, and why),
// ErrMixedTx, ErrForeignTx, ErrInvalidTx, ErrNoTx, ErrClosed,
// ErrSchemaMissing, or the database's own, wrapped. The messages are not
// changed and not retained.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	return view{publisher: p}.Publish(topic, messages...)
}

// WithContext returns a view of the publisher that publishes with the
// transaction and Watermill's delay of ctx, save where a message's own context
// has others. As with those, the end of ctx is no matter. The view's Close
// does nothing.
func (p *Publisher) WithContext(ctx context.Context) message.Publisher {
	return view{p, ctx}
}

// Shared returns a view of the publisher whose Close does nothing. The router
// closes a handler's publisher when that handler stops; give it this one where
// others go on to use the publisher.
func (p *Publisher) Shared() message.Publisher { return view{publisher: p} }

// Close refuses further calls with outmill.ErrClosed and waits for those under
// way. It may be called more than once.
func (p *Publisher) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.calls.Wait()
	return nil
}

// enter counts a call under way, unless the publisher is closed.
func (p *Publisher) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.calls.Add(1)
	return true
}

// publish reports when the call is over for Close, so that OnDuplicate may use
// the publisher.
func (p *Publisher) publish(base context.Context, topic string, messages []*message.Message) error {
	if err := storekit.CheckTopic(topic); err != nil {
		return fmt.Errorf("outmill: publish: %w", err)
	}
	appended, err := p.append(base, topic, messages)
	if err != nil {
		return fmt.Errorf("outmill: publish to %q: %w", topic, err)
	}
	p.report(topic, messages, appended)
	return nil
}

func (p *Publisher) append(base context.Context, topic string, messages []*message.Message) ([]*outmill.Record, error) {
	if !p.enter() {
		return nil, outmill.ErrClosed
	}
	defer p.calls.Done()
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
		err = fmt.Errorf("not done within publisher.Config.PublishTimeout (%s): %w", p.cfg.PublishTimeout, err)
	}
	return appended, err
}

// report tells of the messages that were left out.
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

// view is a publisher for a context, or one that must not be closed.
type view struct {
	publisher *Publisher
	// ctx is nil where the messages have only their own.
	ctx context.Context
}

func (v view) Publish(topic string, messages ...*message.Message) error {
	return v.publisher.publish(v.ctx, topic, messages)
}

func (v view) Close() error { return nil }
