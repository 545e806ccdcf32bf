package main

import "context"

// sellByEnt passes on the transaction of ent's driver. A client that is generated
// keeps that to itself: generate it with the feature sql/execquery, and pass its
// Tx.
func (s *shop) sellByEnt(ctx context.Context, item string, ending error) error {
	tx, err := s.ent.Tx(ctx)
	if err != nil {
		return err
	}
	// After a commit this does nothing.
	defer func() { _ = tx.Rollback() }()
	if err := tx.Exec(ctx, `INSERT INTO sales (item) VALUES ($1)`, []any{item}, nil); err != nil {
		return err
	}
	if err := s.tell(s.store.WithTx(ctx, tx), item); err != nil {
		return err
	}
	if ending != nil {
		return ending
	}
	return tx.Commit()
}
