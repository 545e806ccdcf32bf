package main

import (
	"context"

	"github.com/uptrace/bun"
)

// sellByBun passes on bun's Tx as it is. Its own methods want question marks in
// place of $1, so the outbox goes past them to the *sql.Tx that it embeds.
func (s *shop) sellByBun(ctx context.Context, item string, ending error) error {
	return s.bun.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO sales (item) VALUES (?)`, item); err != nil {
			return err
		}
		if err := s.tell(s.store.WithTx(ctx, tx), item); err != nil {
			return err
		}
		return ending
	})
}
