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

var (
	errCardDeclined = errors.New("card declined")
	errOutOfRibbon  = errors.New("out of ribbon")
)

// sell writes the sale and publishes it, both in tx, whose end is up to the
// caller.
func (s *shop) sell(ctx context.Context, tx *sql.Tx, item string) error {
	if _, err := tx.ExecContext(ctx, `INSERT INTO sales (item) VALUES ($1)`, item); err != nil {
		return err
	}
	msg := message.NewMessage(watermill.NewUUID(), message.Payload(item))
	return s.pub.WithContext(s.store.WithTx(ctx, tx)).Publish(topic, msg)
}

func (s *shop) sellAll(ctx context.Context, out io.Writer) error {
	for _, step := range []struct {
		happens string
		sell    func(context.Context) error
	}{
		{"book: committed", s.sellBook},
		{"yacht: rolled back, " + errCardDeclined.Error(), s.sellYacht},
		{"vase: committed; its wrapping: rolled back to the savepoint, " + errOutOfRibbon.Error(), s.sellVase},
		{"lamp: committed; its bulb: committed, in a savepoint", s.sellLamp},
	} {
		if err := step.sell(ctx); err != nil {
			return err
		}
		fmt.Fprintln(out, step.happens)
	}
	return nil
}

func (s *shop) sellBook(ctx context.Context) error {
	return s.inTx(ctx, func(tx *sql.Tx) error {
		return s.sell(ctx, tx, "book")
	})
}

func (s *shop) sellYacht(ctx context.Context) error {
	err := s.inTx(ctx, func(tx *sql.Tx) error {
		if err := s.sell(ctx, tx, "yacht"); err != nil {
			return err
		}
		return errCardDeclined
	})
	return unless(err, errCardDeclined)
}

func (s *shop) sellVase(ctx context.Context) error {
	return s.inTx(ctx, func(tx *sql.Tx) error {
		if err := s.sell(ctx, tx, "vase"); err != nil {
			return err
		}
		err := inSavepoint(ctx, tx, func() error {
			if err := s.sell(ctx, tx, "wrapping"); err != nil {
				return err
			}
			return errOutOfRibbon
		})
		return unless(err, errOutOfRibbon)
	})
}

func (s *shop) sellLamp(ctx context.Context) error {
	return s.inTx(ctx, func(tx *sql.Tx) error {
		if err := s.sell(ctx, tx, "lamp"); err != nil {
			return err
		}
		return inSavepoint(ctx, tx, func() error {
			return s.sell(ctx, tx, "bulb")
		})
	})
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

// inSavepoint is for what may fail without the rest of the transaction, for
// which database/sql has no method.
func inSavepoint(ctx context.Context, tx *sql.Tx, fn func() error) error {
	if _, err := tx.ExecContext(ctx, `SAVEPOINT part`); err != nil {
		return err
	}
	if err := fn(); err != nil {
		_, undo := tx.ExecContext(ctx, `ROLLBACK TO SAVEPOINT part`)
		return errors.Join(err, undo)
	}
	_, err := tx.ExecContext(ctx, `RELEASE SAVEPOINT part`)
	return err
}

// unless returns err unless it is the one that the example brings about.
func unless(err, broughtAbout error) error {
	if errors.Is(err, broughtAbout) {
		return nil
	}
	return err
}
