package next

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// sqlIdle has the server end the transaction when its client is silent for so long, unless the user has set another limit: a process
// that was stopped in the middle of it keeps its locks. It holds for the transaction, so the session keeps its own value.
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

// idle returns the limit of a transaction of Transact in milliseconds; "" is none.
func (d *Driver) idle(ctx context.Context) string {
	limit := d.config.IdleInTransaction
	switch deadline, ok := ctx.Deadline(); {
	case limit < 0:
		return ""
	case limit > 0:
	case ok:
		limit = max(time.Until(deadline), leastIdle)
	default:
		limit = defaultIdle
	}
	return strconv.FormatInt(min(limit, mostIdle).Milliseconds(), 10)
}

// opens are the options of a transaction of Transact. pgx sends its BEGIN as a simple query, which may have two statements.
func (d *Driver) opens(ctx context.Context) pgx.TxOptions {
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
	if limit := d.idle(ctx); limit != "" {
		options.BeginQuery = sqlBegin + "; " + strings.Replace(sqlIdle, "$1::text", "'"+limit+"'", 1)
	}
	return options
}
