package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
)

const topic = "sales"

type shop struct {
	pool  *pgxpool.Pool
	store *postgres.Store
	pub   *publisher.Publisher
}

var (
	errCardDeclined = errors.New("card declined")
	errOutOfRibbon  = errors.New("out of ribbon")
)

// sell writes the sale and publishes it, both in tx. What tx is, a transaction
// or a savepoint within one, and how it ends, is up to the caller.
func (s *shop) sell(ctx context.Context, tx pgx.Tx, item string) error {
	if _, err := tx.Exec(ctx, `INSERT INTO sales (item) VALUES ($1)`, item); err != nil {
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
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		return s.sell(ctx, tx, "book")
	})
}

func (s *shop) sellYacht(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if err := s.sell(ctx, tx, "yacht"); err != nil {
			return err
		}
		return errCardDeclined
	})
	return unless(err, errCardDeclined)
}

func (s *shop) sellVase(ctx context.Context) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if err := s.sell(ctx, tx, "vase"); err != nil {
			return err
		}
		err := pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
			if err := s.sell(ctx, savepoint, "wrapping"); err != nil {
				return err
			}
			return errOutOfRibbon
		})
		return unless(err, errOutOfRibbon)
	})
}

func (s *shop) sellLamp(ctx context.Context) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if err := s.sell(ctx, tx, "lamp"); err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
			return s.sell(ctx, savepoint, "bulb")
		})
	})
}

// unless returns err unless it is the one that the example brings about.
func unless(err, broughtAbout error) error {
	if errors.Is(err, broughtAbout) {
		return nil
	}
	return err
}
