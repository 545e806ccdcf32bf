package main

import (
	"context"

	"gorm.io/gorm"
)

// sellByGORM passes on what the *gorm.DB of a transaction runs its statements
// on. The *gorm.DB itself may also be no transaction, so WithTx refuses it.
func (s *shop) sellByGORM(ctx context.Context, item string, ending error) error {
	return s.gorm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Exec(`INSERT INTO sales (item) VALUES (?)`, item).Error; err != nil {
			return err
		}
		if err := s.tell(s.store.WithTx(ctx, tx.Statement.ConnPool), item); err != nil {
			return err
		}
		return ending
	})
}
