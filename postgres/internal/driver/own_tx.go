package driver

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/internal/crash"
	"github.com/outmill/outmill/postgres/internal/conns"
	"github.com/outmill/outmill/storekit"
)

// rollbackWithin limits the time of a rollback after a failure.
const rollbackWithin = 2 * time.Second

// errConnectionLost says that the connection was lost before the COMMIT was sent, so that nothing has been written.
var errConnectionLost = errors.New("the connection was lost before the commit")

// ownTx is a transaction of the driver's own on a connection of the pool.
type ownTx struct {
	lent  *conns.Lent
	conns *conns.Conns
	conn  *pgx.Conn
	// begun says that the BEGIN was answered, sent that the COMMIT was sent, and over that it was answered.
	begun, sent, over bool
}

func (d *Driver) begin(ctx context.Context) (*ownTx, error) {
	lent, err := d.conns.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &ownTx{lent: lent, conns: d.conns, conn: lent.Conn}, nil
}

// committing runs send, which sends the COMMIT. It marks an error that leaves open whether the COMMIT took effect.
func (o *ownTx) committing(send func() error) error {
	o.sent = true
	crash.At(crash.BeforeCommit)
	err := send()
	crash.At(crash.AfterCommit)
	if !o.begun && code(err) != "" {
		// What the server answers instead of the BEGIN, such as that it has ended the session, comes before it has begun.
		if o.sent = false; isConnection(err) {
			return errors.Join(errConnectionLost, err)
		}
		return err
	}
	return committed(err)
}

// committed returns the error of a COMMIT, as a doubt where it is one.
func committed(err error) error {
	if err != nil && mayBeCommitted(err) {
		err = storekit.CommitInDoubt(err)
	}
	return err
}

// lost reports whether the transaction failed because its connection broke before the COMMIT was sent.
func (o *ownTx) lost(ctx context.Context, err error) bool {
	return !o.sent && ctx.Err() == nil && isConnection(err)
}

// end returns the connection to the pool, after a rollback if the transaction is still open.
func (o *ownTx) end(ctx context.Context, err error) {
	defer o.conns.GiveBack(o.lent, err)
	if conns.IsReadOnly(err) || o.conn.IsClosed() || o.conn.PgConn().TxStatus() == idle {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWithin)
	defer cancel()
	_, _ = o.conn.Exec(ctx, "ROLLBACK")
}
