package postgrestest

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// idleFor is how long a session is kept without work. It is shorter than goleak waits for goroutines: on a busy
// machine pgx has one for a session, after a slow write, until the next answer.
const idleFor = 100 * time.Millisecond

// admins keeps sessions on the server of Server. It keeps none on a server that a test has for
// itself, where such a session would be a stranger to the test.
var admins sessions

type sessions struct {
	mu     sync.Mutex
	shared string
	idle   []*pgx.Conn
	// end closes the idle sessions.
	end *time.Timer
}

func (s *sessions) keepFor(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shared = address
}

func (s *sessions) take(ctx context.Context, address string) (*pgx.Conn, error) {
	if conn := s.pop(address); conn != nil && conn.Ping(ctx) == nil {
		return conn, nil
	}
	return pgx.Connect(ctx, address)
}

func (s *sessions) pop(address string) *pgx.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.idle) - 1
	if last < 0 || address != s.shared {
		return nil
	}
	conn := s.idle[last]
	s.idle = s.idle[:last]
	return conn
}

func (s *sessions) put(ctx context.Context, address string, conn *pgx.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if conn.IsClosed() || address != s.shared {
		_ = conn.Close(ctx)
		return
	}
	s.idle = append(s.idle, conn)
	if s.end == nil {
		s.end = time.AfterFunc(idleFor, s.closeIdle)
		return
	}
	s.end.Reset(idleFor)
}

func (s *sessions) closeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, conn := range s.idle {
		_ = conn.Close(ctx)
	}
	s.idle = nil
}

// Listening is the condition in pg_stat_activity of a store's connection that listens. One that is silent for some seconds is asked whether
// it may still write, which is its last statement then.
const Listening = `datname = current_database() AND pid <> pg_backend_pid() AND query ~ '^LISTEN |transaction_read_only'`
