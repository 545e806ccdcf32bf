package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outmill/outmill"
)

// errDone ends a mover that has no message left.
var errDone = errors.New("all is moved")

// pacemaker gets the result of each transaction of the subscriber.
type pacemaker struct {
	ctx  context.Context
	m    *mover
	fail context.CancelCauseFunc
}

// HandleError decides how long the subscriber waits.
func (p pacemaker) HandleError(_ watermill.LoggerAdapter, noMsg bool, err error) time.Duration {
	p.m.settle(p.ctx)
	switch {
	case p.ctx.Err() != nil:
		return 0
	case conflict(err):
		// Another reader of the group was faster.
		return 0
	case err != nil:
		p.fail(err)
		return 0
	}
	p.m.well()
	if noMsg {
		return pollInterval
	}
	return 0
}

// settle counts the batch if its transaction was committed. watermill-sql logs a failed commit,
// but does not return its error.
func (m *mover) settle(ctx context.Context) {
	id := m.transactionID()
	if id == "" {
		return
	}
	const patience = 10 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	var status string
	err := m.db.QueryRowContext(ctx, `SELECT coalesce(pg_xact_status($1::xid8), '')`, id).Scan(&status)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil && status == "committed" {
		m.done.add(m.batch)
	}
	m.batch, m.transaction = counts{}, ""
}

func (m *mover) well() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failing = time.Time{}
}

// final reports whether a retry is useless, or useless by now.
func (m *mover) final(err error) bool {
	var r *refused
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &r), errors.Is(err, outmill.ErrSchemaMissing), errors.Is(err, outmill.ErrInvalidConfig):
		return true
	case errors.As(err, &pg) && hopeless(pg.Code):
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failing.IsZero() {
		m.failing = time.Now()
	}
	return time.Since(m.failing) > m.options.patience
}

// hopeless are the classes of errors that the same statement meets again: bad
// data, no such role, database or schema, no such table, no right.
func hopeless(code string) bool {
	for _, class := range []string{"22", "28", "3D", "3F", "42"} {
		if strings.HasPrefix(code, class) {
			return true
		}
	}
	return false
}

func conflict(err error) bool {
	const serializationFailure, deadlock = "40001", "40P01"
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == serializationFailure || pg.Code == deadlock)
}

// watch ends the mover when no message is left (-once), or when the remaining messages do not
// arrive.
func (m *mover) watch(ctx context.Context, finish context.CancelCauseFunc) {
	ticker := time.NewTicker(m.options.idle)
	defer ticker.Stop()
	for m.options.once {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		quiet := m.quiet()
		if quiet < m.options.idle {
			continue
		}
		left, err := m.table.left(ctx, m.db)
		switch {
		case err != nil:
			// If the database is down, the subscription reports it.
		case left == 0:
			finish(errDone)
		case quiet > m.options.patience:
			finish(stuck(left))
		}
	}
}

func (m *mover) quiet() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(m.lastSeen)
}

func stuck(left int) error {
	return fmt.Errorf("%d messages are left and do not come: a transaction that is older than theirs is still open (see pg_stat_activity), "+
		"or another reader of the consumer group holds them, or the table was restored from another server, whose transaction ids are not "+
		"this one's", left)
}
