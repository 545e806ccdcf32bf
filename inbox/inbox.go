package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/crash"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// comesAgainWithin is the longest snooze of a message that another transaction is handling.
const comesAgainWithin = 250 * time.Millisecond

// Inbox is an idempotent consumer over a store. It may be used concurrently, by many
// handlers.
type Inbox struct {
	store      outmill.Writer
	transactor roles.Transactor
	notes      roles.Inbox
	cfg        Config
}

// New makes an inbox that keeps its notes in the store, which must be a roles.Transactor
// and a roles.Inbox, as the stores of this module are. The caller closes the
// store. New returns outmill.ErrInvalidConfig for an invalid Config, a nil store, or a store
// without an inbox.
func New(store outmill.Writer, cfg Config) (*Inbox, error) {
	if outmill.IsNil(store) {
		return nil, fmt.Errorf("%w: inbox.New: the store is nil", outmill.ErrInvalidConfig)
	}
	transactor, transacts := outmill.As[roles.Transactor](store)
	notes, keeps := outmill.As[roles.Inbox](store)
	if !transacts || !keeps {
		return nil, fmt.Errorf("%w: inbox.New: a %T has no inbox: use a store of sqlite, postgres, mysql, mongo or sqlserver",
			outmill.ErrInvalidConfig, store)
	}
	limit := transactor.TxLimit()
	if err := cfg.validate(limit); err != nil {
		return nil, err
	}
	return &Inbox{store: store, transactor: transactor, notes: notes, cfg: cfg.withDefaults(limit)}, nil
}

// Middleware is router middleware: it calls h once for each message, however often the
// message is delivered. h gets a copy of the message, whose context carries the transaction. An
// Ack of the copy has no effect, because the message is acked after the commit; after a Nack of it
// the transaction is rolled back. The package comment says in which order to add it and other
// middleware. Inside another inbox of the same store it has no effect: the outer one has noted
// the message. It is safe for concurrent use.
func (b *Inbox) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		if msg.Context().Value(insideKey{}) == (inside{b.store, msg.UUID}) {
			return h(msg)
		}
		key, err := b.cfg.Key(msg)
		if err != nil {
			return nil, outmill.Permanent(err)
		}
		d := delivery{inbox: b, original: keep(msg), handler: h}
		lease := b.leaseOf(msg.Context())
		d.note = roles.Note{Consumer: b.scopeOf(msg, lease), Key: key, Retention: b.cfg.Retention, Lease: lease}
		if err := storekit.CheckNote(d.note); err != nil {
			return nil, outmill.Permanent(fmt.Errorf("outmill/inbox: the key of the message is invalid: %w", err))
		}
		err = d.handle()
		return nil, b.explain(msg, d.begun, err)
	}
}

// explain returns a Collision if another transaction is handling the message, or if the handler
// could not begin because the database is busy, so that no attempt counts. Other subscribers than
// Outmill's get the error itself.
func (b *Inbox) explain(msg *message.Message, begun bool, err error) error {
	busy := errors.Is(err, roles.ErrNoteBusy) || !begun && errors.Is(err, storekit.ErrBusy)
	if _, ours := outmill.Delivery(msg.Context()); !ours || !busy {
		return err
	}
	return &storekit.Collision{Err: err, Delay: rand.N(comesAgainWithin)}
}

// leaseOf returns the lease of the message of ctx if the inbox's own store has delivered it, and
// zero for a message from elsewhere.
func (b *Inbox) leaseOf(ctx context.Context) outmill.Lease {
	if lease, ok := storekit.MessageLeaseOf(ctx); ok && lease.Inbox() == b.notes {
		return lease.Lease()
	}
	return outmill.Lease{}
}

// delivery is one delivery of a message.
type delivery struct {
	original
	inbox   *Inbox
	handler message.HandlerFunc
	note    roles.Note
	// begun says that the transaction has begun.
	begun bool
}

// inside says in a handler's context that an inbox of the store has noted the message.
type inside struct {
	store outmill.Writer
	uuid  string
}

type insideKey struct{}

func (d *delivery) handle() error {
	b := d.inbox
	ctx, cancel := context.WithTimeout(context.WithValue(d.ctx, insideKey{}, inside{b.store, d.msg.UUID}), b.longest())
	defer cancel()
	crash.At("delivered")
	duplicate := false
	err := storekit.TransactPatiently(ctx, b.transactor, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, b.cfg.MaxProcessing)
		defer cancel()
		d.begun = true
		crash.At("begun")
		duplicate, err = b.notes.PutNote(ctx, d.note, b.cfg.Wait)
		if err != nil || duplicate {
			return err
		}
		crash.At("noted")
		return cmp.Or(d.run(ctx), ctx.Err())
	})
	crash.At("committed")
	if err == nil && duplicate {
		d.tellDuplicate()
	}
	return err
}

// longest returns the longest time for a delivery: MaxProcessing for the handler, and where
// the store has no limit of transactions as long again for waiting until its transaction begins.
func (b *Inbox) longest() time.Duration {
	if b.transactor.TxLimit() > 0 {
		return b.cfg.MaxProcessing
	}
	return 2 * b.cfg.MaxProcessing
}

// run runs the handler and publishes what it returns.
func (d *delivery) run(ctx context.Context) error {
	produced, err := d.pass(ctx, d.handler)
	crash.At("handled")
	if err != nil || len(produced) == 0 {
		return err
	}
	topic := message.PublishTopicFromCtx(d.ctx)
	switch {
	case d.inbox.cfg.Publisher == nil:
		return outmill.Permanent(errors.New("outmill/inbox: the handler returned messages, but Config.Publisher is nil: set it"))
	case topic == "":
		return outmill.Permanent(errors.New("outmill/inbox: the handler returned messages, but the router has no topic for them: use AddHandler"))
	}
	for _, m := range produced {
		m.SetContext(ctx)
	}
	err = d.inbox.cfg.Publisher.Publish(topic, produced...)
	crash.At("published")
	return err
}

func (d *delivery) tellDuplicate() {
	d.inbox.cfg.Logger.Debug("Skipped a message that was handled before", watermill.LogFields{
		"store": d.inbox.store.Name(), "consumer": d.note.Consumer, "message_uuid": d.msg.UUID,
	})
	if d.inbox.cfg.OnDuplicate != nil {
		d.inbox.cfg.OnDuplicate(d.msg)
	}
}
