package listen

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outmill/outmill/postgres/internal/conns"
	"github.com/outmill/outmill/storekit"
)

const (
	// heartbeat is the time after which a listening connection that is silent is asked whether it
	// still works: a firewall that has forgotten it, or a server that is gone, tells nobody.
	heartbeat = 10 * time.Second
	// answersWithin is the time that a listening connection has to answer, and to be opened.
	answersWithin = 10 * time.Second
)

// connect has a limit of time also where the user has set none. A wait for a place in a budget of
// connections does not count.
func (l *listener) connect() (*pgx.Conn, error) {
	config, prepare, err := l.settings(l.ctx)
	if err != nil {
		return nil, err
	}
	// A handler of the pool's, or that of the connection whose settings these are, would get the
	// notifications in place of this one.
	config.OnNotification = nil
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = answersWithin
	}
	if prepare != nil {
		if err := prepare(l.ctx, config); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(l.ctx, config)
}

// next returns the next notification, or an error after a heartbeat of silence.
func (l *listener) next(wait context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	ctx, cancel := context.WithTimeout(wait, l.heartbeat)
	defer cancel()
	return conn.WaitForNotification(ctx)
}

// ask sends statements.
func (l *listener) ask(conn *pgx.Conn, statements string) error {
	ctx, cancel := context.WithTimeout(l.ctx, min(answersWithin, l.heartbeat))
	defer cancel()
	_, err := conn.PgConn().Exec(ctx, statements).ReadAll()
	return err
}

// stillWrites returns an error if the session of a listening connection could write at its begin
// and cannot any more: notifications come from another server then.
func (l *listener) stillWrites(conn *pgx.Conn, before *bool) error {
	ctx, cancel := context.WithTimeout(l.ctx, min(answersWithin, l.heartbeat))
	defer cancel()
	var writable bool
	if err := conn.QueryRow(ctx, conns.SQLWritable, pgx.QueryExecModeSimpleProtocol).Scan(&writable); err != nil {
		return err
	}
	if *before && !writable {
		return storekit.ErrReadOnly
	}
	*before = writable
	return nil
}
