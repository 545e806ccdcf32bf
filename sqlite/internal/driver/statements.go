package driver

import (
	"context"
	"database/sql"
	"maps"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
)

// names converts templates of statements to SQL for one prefix: {p:records} becomes the quoted name of the table
// (or index) records.
type names struct{ prefix string }

var placeholder = regexp.MustCompile(`\{p:([a-z_]+)\}`)

// in hides the parameter of LIMIT ? behind a sign. SQLite would plan by its value, and so prepare the statement again
// each time that it gets another one.
func (n names) in(template string) string {
	return placeholder.ReplaceAllString(strings.ReplaceAll(template, "LIMIT ?", "LIMIT +?"), `"`+n.prefix+`$1"`)
}

// statements are prepared once for the whole handle, after the transaction that has run them first: in a transaction,
// another connection may not be free.
type statements struct {
	mu sync.Mutex
	// known has nil for a statement that is to be prepared.
	known map[string]*sql.Stmt
	// more says that there are such.
	more   atomic.Bool
	closed bool
}

// of returns the prepared statement of a template, or nil.
func (s *statements) of(template string) *sql.Stmt {
	s.mu.Lock()
	defer s.mu.Unlock()
	statement, seen := s.known[template]
	if !seen && !s.closed {
		if s.known == nil {
			s.known = map[string]*sql.Stmt{}
		}
		s.known[template] = nil
		s.more.Store(true)
	}
	return statement
}

// prepare prepares the statements that have run since the last call. It has time: without it they are slower.
func (d *Driver) prepare(ctx context.Context) {
	s := &d.statements
	if !s.more.CompareAndSwap(true, false) {
		return
	}
	s.mu.Lock()
	known := maps.Clone(s.known)
	s.mu.Unlock()
	for template, statement := range known {
		if statement != nil {
			continue
		}
		statement, err := d.db.PrepareContext(ctx, d.names.in(template))
		if err != nil {
			s.more.Store(true)
			return
		}
		s.keep(template, statement)
	}
}

func (s *statements) keep(template string, statement *sql.Stmt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.known[template] != nil {
		_ = statement.Close()
		return
	}
	s.known[template] = statement
}

func (s *statements) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, statement := range s.known {
		if statement != nil {
			_ = statement.Close()
		}
	}
	s.known, s.closed = nil, true
}
