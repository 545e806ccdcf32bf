package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"

	"entgo.io/ent/dialect"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	"gorm.io/gorm"

	"github.com/outmill/outmill/publisher"
)

const topic = "sales"

// shop has one pool, and the libraries that work with it.
type shop struct {
	db    *sql.DB
	bun   *bun.DB
	sqlx  *sqlx.DB
	gorm  *gorm.DB
	ent   dialect.Driver
	store transactional
	pub   *publisher.Publisher
}

// transactional is any of the SQL stores.
type transactional interface {
	WithTx(ctx context.Context, tx any) context.Context
}

var errCardDeclined = errors.New("card declined")

// tell publishes in the transaction that ctx carries.
func (s *shop) tell(ctx context.Context, item string) error {
	msg := message.NewMessage(watermill.NewUUID(), message.Payload(item))
	return s.pub.WithContext(ctx).Publish(topic, msg)
}

// way is a way to sell something in a transaction, which ends with an error if
// one is given.
type way struct {
	name            string
	sell            func(ctx context.Context, item string, ending error) error
	bought, refused string
}

func (s *shop) ways() []way {
	return []way{
		{"sqlc's DBTX", s.sellBySQLC, "book", "yacht"},
		{"a wrapper that counts", s.sellCounted, "lamp", "sofa"},
		{"bun's Tx", s.sellByBun, "vase", "organ"},
		{"sqlx's Tx", s.sellBySQLX, "clock", "piano"},
		{"gorm's ConnPool", s.sellByGORM, "chair", "couch"},
		{"ent's Tx", s.sellByEnt, "plant", "statue"},
	}
}

func (s *shop) sellAll(ctx context.Context, out io.Writer) error {
	for _, w := range s.ways() {
		if err := w.sell(ctx, w.bought, nil); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		if err := w.sell(ctx, w.refused, errCardDeclined); !errors.Is(err, errCardDeclined) {
			return fmt.Errorf("%s: want the second sale to fail as the card is declined, got: %w", w.name, err)
		}
		fmt.Fprintf(out, "%s: %s: committed; %s: rolled back, %s\n", w.name, w.bought, w.refused, errCardDeclined)
	}
	return nil
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
