package postgres

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// A process that is stopped (SIGSTOP, a paused virtual machine) in the middle of a transaction keeps
// its locks, and with an inbox the note of its message, because its connection stays open. Only the
// server can end that.

// sqlIdle has the server end the transaction when its client is silent for so long, unless the user
// has set another limit. It holds for the transaction, so the session keeps its own value.
const sqlIdle = `SELECT pg_catalog.set_config('idle_in_transaction_session_timeout', $1::text, true)
	WHERE pg_catalog.current_setting('idle_in_transaction_session_timeout') OPERATOR(pg_catalog.=) '0'`

const (
	// defaultIdle is the default MaxProcessing of handlers.
	defaultIdle = 15 * time.Minute
	// leastIdle is the shortest limit of a transaction whose context ends soon.
	leastIdle = time.Second
	// mostIdle is PostgreSQL's longest limit.
	mostIdle = (1<<31 - 1) * time.Millisecond
)

// idle returns the limit of a transaction of Transact; 0 is none.
func (s *Store) idle(ctx context.Context) time.Duration {
	limit := s.config.IdleInTransaction
	switch deadline, ok := ctx.Deadline(); {
	case limit < 0:
		return 0
	case limit > 0:
	case ok:
		limit = max(time.Until(deadline), leastIdle)
	default:
		limit = defaultIdle
	}
	return min(limit, mostIdle)
}

// idleSteps are the steps that set the limit.
func (s *Store) idleSteps(ctx context.Context) []step {
	limit := s.idle(ctx)
	if limit == 0 {
		return nil
	}
	return []step{{template: sqlIdle, args: []any{milliseconds(limit)}}}
}

// beginAlone are the options of a BEGIN that is sent alone. pgx sends it as a simple query, which may
// have two statements.
func (s *Store) beginAlone(ctx context.Context) pgx.TxOptions {
	options := ofOpenTx
	if limit := s.idle(ctx); limit != 0 {
		options.BeginQuery = sqlBegin + "; " + strings.Replace(sqlIdle, "$1::text", "'"+milliseconds(limit)+"'", 1)
	}
	return options
}

// limitIdle is idleSteps for a transaction of database/sql.
func (s *Store) limitIdle(ctx context.Context, tx *sql.Tx) error {
	for _, one := range s.idleSteps(ctx) {
		if _, err := tx.ExecContext(ctx, one.template, one.args...); err != nil {
			return err
		}
	}
	return nil
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
