package driver

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// pgx prepares, or describes, what it does not know on a connection in front of a whole batch, also in front of a savepoint that begins
// the batch. If that failed, such as for a right that is missing, it would end the caller's transaction. So the first time that a
// connection gets a statement in such a batch, the savepoint goes alone. That is one round trip more, besides the one that pgx takes then.

// preparedKey is the key of a connection's data that has the texts of statements that it has run.
const preparedKey = "outmill prepared"

// saveFirst sends a savepoint that begins the steps, if pgx may prepare others before it. It returns the steps that are left.
func (p onPgx) saveFirst(ctx context.Context, steps []step) ([]step, error) {
	conn := p.conn()
	if steps[0].text != sqlSavepoint || len(steps) == 1 || conn == nil || !mayPrepare(conn, steps[1:]) {
		return steps, nil
	}
	return steps[1:], p.send(ctx, steps[:1])
}

// mayPrepare reports whether pgx may prepare or describe one of the statements before it sends them.
func mayPrepare(conn *pgx.Conn, steps []step) bool {
	switch conn.Config().DefaultQueryExecMode {
	case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol:
		return false
	case pgx.QueryExecModeDescribeExec:
		return true
	default:
	}
	known, _ := conn.PgConn().CustomData()[preparedKey].(map[string]bool)
	for _, s := range steps {
		if !known[s.text] {
			return true
		}
	}
	return false
}

// keepPrepared notes what pgx has prepared, or will prepare again, because it forgets a statement that has failed.
func (p onPgx) keepPrepared(steps []step, err error) {
	conn := p.conn()
	if conn == nil {
		return
	}
	data := conn.PgConn().CustomData()
	known, _ := data[preparedKey].(map[string]bool)
	if known == nil {
		known = map[string]bool{}
		data[preparedKey] = known
	}
	for _, s := range steps {
		if err != nil {
			delete(known, s.text)
		} else {
			known[s.text] = true
		}
	}
}
