package sqlserver_test

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest"
)

// shelf has the tables of sentences that have ended, for those to come: to make
// them takes longer than most sentences do, and each session compiles the
// procedures of each set of tables anew.
type shelf struct {
	mu    sync.Mutex
	names []string
	// changed are not to be used again.
	changed map[string]bool
}

// wipe empties the tables. Numbers of the groups' generation and of places go on.
const wipe = `DELETE FROM {}JoinMember; DELETE FROM {}Join; DELETE FROM {}Dedup; DELETE FROM {}Group; DELETE FROM {}Lane; DELETE FROM {};`

func (s *shelf) take() (name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.names); n > 0 {
		name = s.names[n-1]
		s.names = s.names[:n-1]
	}
	return name
}

func (s *shelf) putBack(t *testing.T, db *sql.DB, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.Failed() || s.changed[name] {
		return
	}
	_, err := db.ExecContext(context.WithoutCancel(t.Context()), strings.ReplaceAll(wipe, "{}", name))
	require.NoError(t, err)
	s.names = append(s.names, name)
}

func (s *shelf) change(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = map[string]bool{}
	}
	s.changed[name] = true
}

// newConforming is newConforming with tables from the shelf, if it has any.
func (s *shelf) newConforming(t *testing.T, db *sql.DB, options storetest.Options) outmill.Store {
	t.Helper()
	if options.NoSchema {
		return newConforming(t, db, options)
	}
	config := conformingConfig(options)
	name := s.take()
	if name != "" {
		config.Table = name
	}
	// It comes after what the store does when the test ends.
	t.Cleanup(func() { s.putBack(t, db, config.Table) })
	store := newStore(t, db, config)
	if name == "" {
		require.NoError(t, store.Ensure(t.Context()))
	}
	return conforming{store, config}
}
