package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
)

const (
	// pollInterval is the interval at which an empty table is read.
	pollInterval = 200 * time.Millisecond
	// pause is the wait before a retry.
	pause = time.Second
	// never is the ack deadline, because Publish has its own time limit. If a deadline ended
	// between the publish and the ack, watermill-sql would commit the publish without the ack.
	never = 100 * 365 * 24 * time.Hour
)

// mover moves the messages of one topic.
type mover struct {
	options options
	table   table
	db      *sql.DB
	pub     *publisher.Publisher
	// atomic says that the messages are published in the transaction that acks them.
	atomic bool
	out    *printer
	logger watermill.LoggerAdapter

	mu sync.Mutex
	// done has the final counts, and batch the counts of the open transaction.
	done, batch counts
	// transaction is the id of the open transaction.
	transaction string
	// lastSeen is the time of the last message, or of the start of the mover.
	lastSeen time.Time
	// failing is the time since which there were only errors; zero if there is no error.
	failing time.Time
}

func newMover(o options, topic string, db *sql.DB, store *postgres.Store, atomic bool, out *printer,
	logger watermill.LoggerAdapter) (*mover, error) {
	m := &mover{options: o, table: newTable(o, topic), db: db, atomic: atomic, out: out, logger: logger}
	var err error
	m.pub, err = publisher.New(store, publisher.Config{
		RequireTx: atomic,
		// The delays in the old table are those that your own services set.
		DelaysInMetadata: true,
		OnDuplicate:      func(string, *message.Message) { m.count(counts{moved: -1, repeated: 1}) },
	}, logger)
	return m, err
}

func (m *mover) total() counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.done
}

// run moves messages until ctx ends, all are moved (-once), or an error is permanent.
func (m *mover) run(ctx context.Context) error {
	m.lastSeen = time.Now()
	ctx, finish := context.WithCancelCause(ctx)
	defer finish(nil)
	var watching sync.WaitGroup
	watching.Go(func() { m.watch(ctx, finish) })
	defer watching.Wait()
	defer finish(nil)
	for {
		err := m.subscribe(ctx)
		switch {
		case errors.Is(context.Cause(ctx), errDone):
			return nil
		case ctx.Err() != nil:
			if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
				return m.table.explain(cause)
			}
			return nil
		case m.final(err):
			return m.explain(err)
		}
		m.out.line("%s: trying again: %v", m.table.topic, err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (m *mover) explain(err error) error {
	var r *refused
	if errors.As(err, &r) {
		return r
	}
	return m.table.explain(err)
}

// subscribe moves messages until something fails. The open transaction is then rolled back,
// because the context of its subscription ends, and its published messages are rolled back with its
// acks. If we closed the subscriber instead, it would commit a message that is published and not
// acked.
func (m *mover) subscribe(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	m.begin()
	schema, offsets := m.table.adapters(m.options.batch)
	deadline := never
	sub, err := wsql.NewSubscriber(m.db, wsql.SubscriberConfig{
		ConsumerGroup:    m.options.group,
		AckDeadline:      &deadline,
		SchemaAdapter:    schema,
		OffsetsAdapter:   offsets,
		InitializeSchema: m.options.fromStart,
		BackoffManager:   pacemaker{ctx, m, fail},
	}, m.logger)
	if err != nil {
		return err
	}
	messages, err := sub.Subscribe(ctx, m.table.topic)
	if err != nil {
		return err
	}
	for msg := range messages {
		if ctx.Err() != nil {
			msg.Nack()
			continue
		}
		if err := m.move(msg); err != nil {
			fail(err)
			msg.Nack()
			continue
		}
		msg.Ack()
	}
	return errors.Join(context.Cause(ctx), sub.Close())
}

func (m *mover) move(msg *message.Message) error {
	m.seen()
	n := noteOf(m.table.topic, msg)
	if err := m.join(msg.Context()); err != nil {
		return fmt.Errorf("%s: %w", n, err)
	}
	topic, out, err := m.prepare(msg, n)
	if err == nil {
		// Count before the publish, because a duplicate undoes the count.
		m.count(counts{moved: 1})
		if err = m.pub.Publish(topic, out); err == nil {
			return nil
		}
		m.count(counts{moved: -1})
		if !errors.Is(err, outmill.ErrInvalidRecord) {
			return fmt.Errorf("%s: %w", n, err)
		}
		err = fmt.Errorf("cannot be published: %w", err)
	}
	r := &refused{note: n, table: m.table.messages, reason: err}
	if !m.options.skipMalformed {
		return r
	}
	m.out.line("%s: skipped, and still in %s: the message %v", n, r.table, err)
	m.count(counts{skipped: 1})
	return nil
}

// join reads the id of the transaction in which a batch is acked.
func (m *mover) join(ctx context.Context) error {
	if !m.atomic || m.transactionID() != "" {
		return nil
	}
	tx, ok := wsql.TxFromContext(ctx)
	if !ok {
		return outmill.ErrNoTx
	}
	var id string
	if err := tx.QueryRowContext(ctx, `SELECT pg_current_xact_id()::text`).Scan(&id); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.transaction = id
	return nil
}

func (m *mover) transactionID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.transaction
}

func (m *mover) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.batch, m.transaction = counts{}, ""
}

func (m *mover) seen() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastSeen = time.Now()
}

// count counts in the open transaction, which may still be rolled back. Without an open transaction
// the count is final.
func (m *mover) count(c counts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.atomic {
		m.batch.add(c)
	} else {
		m.done.add(c)
	}
}
