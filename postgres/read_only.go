package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/postgres/internal/conns"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// inPoolTx runs fn in a READ COMMITTED transaction on a connection of the pool.
func (s *Store) inPoolTx(ctx context.Context, fn func(tx pgx.Tx) error) (err error) {
	conn, err := s.conns.Acquire(ctx)
	if err != nil {
		return err
	}
	defer func() { s.conns.GiveBack(conn, err) }()
	return pgx.BeginTxFunc(ctx, conn, ofOpenTx, fn)
}

// CheckWrites asks whether the server accepts writes again, after it has refused one. See
// storekit.WriteChecker.
func (s *Store) CheckWrites(ctx context.Context) error {
	return s.explain(ctx, "check writes", s.conns.CheckWrites(func() (bool, error) { return s.writable(ctx) }))
}

func (s *Store) writable(ctx context.Context) (writable bool, err error) {
	err = s.safe().QueryRow(ctx, conns.SQLWritable).Scan(&writable)
	return writable, err
}

// examineWrites looks whether the server accepts writes.
func (s *Store) examineWrites(ctx context.Context, e *roles.Examination) error {
	writable, err := s.writable(ctx)
	if err == nil && !writable {
		e.Add(storekit.StoreFinding(storekit.ErrReadOnly))
	}
	return err
}

var _ storekit.WriteChecker = (*Store)(nil)
