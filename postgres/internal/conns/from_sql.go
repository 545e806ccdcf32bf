package conns

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/storekit"
)

// pgxOf is a connection of pgx below database/sql.
type pgxOf interface{ Conn() *pgx.Conn }

// noTx is the status of a connection that is in no transaction.
const noTx = 'I'

// fromSQL returns the connection of pgx below one of the pool, which belongs to the caller until it calls back. A connection that
// cannot be used again is closed then. Raw runs until then, because database/sql lends the driver's connection only for so long.
func fromSQL(ctx context.Context, db *sql.DB) (conn *pgx.Conn, back func(), err error) {
	lent, err := db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	found, given, done := make(chan *pgx.Conn), make(chan struct{}), make(chan struct{})
	reusable := false
	go func() {
		defer close(done)
		err = lent.Raw(func(raw any) error {
			of, ok := raw.(pgxOf)
			if !ok {
				return notPgx(raw)
			}
			found <- of.Conn()
			<-given
			if !reusable {
				return driver.ErrBadConn
			}
			return nil
		})
		_ = lent.Close()
	}()
	select {
	case <-done:
		return nil, nil, err
	case c := <-found:
		return c, func() {
			reusable = !c.IsClosed() && !c.PgConn().IsBusy() && c.PgConn().TxStatus() == noTx
			close(given)
			// The end of a broken connection may take some seconds.
			if reusable {
				<-done
			}
		}, nil
	}
}

// notPgx refuses a driver of database/sql, or a connection of it.
func notPgx(found any) error {
	return storekit.InvalidConfig("postgres.NewFromDB: the driver of the *sql.DB is a %T, and the store needs that of pgx: open the pool "+
		`with sql.Open("pgx", url) and import _ "github.com/jackc/pgx/v5/stdlib", or give the URL to postgres.Open`, found)
}
