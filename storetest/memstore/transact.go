package memstore

import (
	"context"
	"errors"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// errBusy says that another open transaction has changed the same row or dedup key.
var errBusy = errors.New("another open transaction has changed it: repeat this one when the other has ended")

func passes(err error) bool { return errors.Is(err, errBusy) }

// Transact runs fn in a transaction. See storekit.Transactor.
func (s *Store) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	explain := func(err error) error { return failed("transact", err) }
	return storekit.TransactOr(ctx, s, fn, explain, s.prove, func() error {
		return storekit.Repeat(ctx, passes, func() error { return s.transact(ctx, fn) })
	})
}

// prove returns an error if the transaction that ctx carries has ended.
func (s *Store) prove(ctx context.Context) error {
	return s.inTx(ctx, "look at a transaction", func(*Tx, time.Time) error { return nil })
}

// transact runs fn once. It rolls back unless it has committed, after a panic too.
func (s *Store) transact(ctx context.Context, fn func(ctx context.Context) error) error {
	if err := s.do(ctx, "transact", func(*Database, time.Time) error { return nil }); err != nil {
		return err
	}
	tx := s.db.Begin()
	defer func() { _ = tx.Rollback() }()
	if err := fn(s.WithTx(ctx, tx)); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return failed("transact", err)
	}
	return tx.Commit()
}

// TxLimit returns 0, because transactions have no time limit. See storekit.Transactor.
func (*Store) TxLimit() time.Duration { return 0 }

// Tx returns the transaction that ctx carries for this store, such as the transaction of
// Transact. It reports false if there is none.
func (s *Store) Tx(ctx context.Context) (*Tx, bool) {
	tx, err := s.tx(ctx)
	return tx, err == nil && tx != nil
}

// tx returns the transaction that ctx carries, or nil.
func (s *Store) tx(ctx context.Context) (*Tx, error) {
	carried, err := s.TxOf(ctx)
	if err != nil || carried == nil {
		return nil, err
	}
	tx, ok := carried.(*Tx)
	if !ok || tx == nil || tx.db != s.db {
		return nil, outmill.ErrInvalidTx
	}
	return tx, nil
}

// inTx runs fn under the database's lock, in the transaction of the context or in one of its
// own.
func (s *Store) inTx(ctx context.Context, operation string, fn func(t *Tx, now time.Time) error) error {
	carried, err := s.tx(ctx)
	if err != nil {
		return failed(operation, err)
	}
	woken := func() {}
	err = s.do(ctx, operation, func(d *Database, now time.Time) error {
		if carried != nil {
			if carried.ended {
				return errTxEnded
			}
			return fn(carried, now)
		}
		tx := d.Begin()
		if err := fn(tx, now); err != nil {
			tx.rollback()
			return err
		}
		woken, err = tx.commit()
		return err
	})
	woken()
	return err
}
