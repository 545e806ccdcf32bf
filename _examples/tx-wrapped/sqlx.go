package main

import "context"

// sellBySQLX passes on the *sqlx.Tx as it is.
func (s *shop) sellBySQLX(ctx context.Context, item string, ending error) error {
	tx, err := s.sqlx.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	// After a commit this does nothing.
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.NamedExecContext(ctx, `INSERT INTO sales (item) VALUES (:item)`, map[string]any{"item": item}); err != nil {
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
