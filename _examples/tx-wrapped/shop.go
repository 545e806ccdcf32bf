package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
)

const topic = "sales"

type shop struct {
	db    *sql.DB
	store *postgres.Store
	pub   *publisher.Publisher
}

var errCardDeclined = errors.New("card declined")

// tell publishes in the transaction that ctx carries.
func (s *shop) tell(ctx context.Context, item string) error {
	msg := message.NewMessage(watermill.NewUUID(), message.Payload(item))
	return s.pub.WithContext(ctx).Publish(topic, msg)
}

func (s *shop) sellAll(ctx context.Context, out io.Writer) error {
	for _, wrapper := range []struct {
		name            string
		sell            func(ctx context.Context, tx *sql.Tx, item string) error
		bought, refused string
	}{
		{"sqlc's DBTX", s.sellBySQLC, "book", "yacht"},
		{"a wrapper that counts", s.sellCounted, "lamp", "sofa"},
		{"bun's Tx", s.sellByBun, "vase", "organ"},
	} {
		err := s.inTx(ctx, func(tx *sql.Tx) error {
			return wrapper.sell(ctx, tx, wrapper.bought)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", wrapper.name, err)
		}
		err = s.inTx(ctx, func(tx *sql.Tx) error {
			if err := wrapper.sell(ctx, tx, wrapper.refused); err != nil {
				return err
			}
			return errCardDeclined
		})
		if !errors.Is(err, errCardDeclined) {
			return fmt.Errorf("%s: want the second sale to fail as the card is declined, got: %w", wrapper.name, err)
		}
		fmt.Fprintf(out, "%s: %s: committed; %s: rolled back, %s\n", wrapper.name, wrapper.bought, wrapper.refused, errCardDeclined)
	}
	return nil
}

// sellBySQLC passes on what sqlc's Queries are made of.
func (s *shop) sellBySQLC(ctx context.Context, tx *sql.Tx, item string) error {
	var db DBTX = tx
	if err := New(db).InsertSale(ctx, item); err != nil {
		return err
	}
	return s.tell(s.store.WithTx(ctx, db), item)
}

// sellCounted passes on the wrapper, whose methods the outbox then uses.
func (s *shop) sellCounted(ctx context.Context, tx *sql.Tx, item string) error {
	counted := &countingTx{Tx: tx}
	if _, err := counted.ExecContext(ctx, `INSERT INTO sales (item) VALUES ($1)`, item); err != nil {
		return err
	}
	before := counted.statements
	if err := s.tell(s.store.WithTx(ctx, counted), item); err != nil {
		return err
	}
	if counted.statements == before {
		return errors.New("the outbox went past the wrapper")
	}
	return nil
}

// sellByBun passes on what the wrapper embeds, since bun's own methods want
// question marks for arguments, where PostgreSQL has $1.
func (s *shop) sellByBun(ctx context.Context, tx *sql.Tx, item string) error {
	wrapped := bunTx{tx}
	if _, err := wrapped.ExecContext(ctx, `INSERT INTO sales (item) VALUES (?)`, item); err != nil {
		return err
	}
	return s.tell(s.store.WithTx(ctx, wrapped.Tx), item)
}

func (s *shop) inTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	// After a commit this does nothing.
	defer func() { _ = tx.Rollback() }()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}
