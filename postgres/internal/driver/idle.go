package driver

import (
	"context"
	"strconv"
	"time"
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
