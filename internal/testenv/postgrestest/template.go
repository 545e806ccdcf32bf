package postgrestest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv"
)

// Template is a database that tests copy. A copy of a database with a schema takes a third of
// the time in which a store makes the schema in an empty database. Its methods may be called
// concurrently.
type Template struct {
	// Fill makes the content of the database. It must close its sessions, because a database
	// that has sessions cannot be copied.
	Fill func(ctx context.Context, databaseURL string) error

	once sync.Once
	name string
	err  error
}

// Database returns the URL of a new copy for the test, on the server of Server. It is dropped
// with the test. The first call makes the template; DropTemplates drops it.
func (p *Template) Database(tb testing.TB) string {
	tb.Helper()
	serverURL := Server(tb)
	p.once.Do(func() { p.make(tb, serverURL) })
	require.NoError(tb, p.err, "make the template")
	return copyOf(tb, serverURL, p.name)
}

func (p *Template) make(tb testing.TB, serverURL string) {
	tb.Helper()
	// The template outlives the test.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), testenv.Patience)
	defer cancel()
	var databaseURL string
	if p.name, databaseURL, p.err = createDatabase(ctx, tb, serverURL, "template0"); p.err != nil {
		return
	}
	dropLater(serverURL, p.name)
	p.err = p.Fill(ctx, databaseURL)
}

func dropLater(serverURL, name string) {
	templates.Lock()
	defer templates.Unlock()
	templates.drop = append(templates.drop, func() error { return dropDatabase(serverURL, name) })
}

var templates struct {
	sync.Mutex
	drop []func() error
}

// DropTemplates drops the databases of all templates. TestMain calls it after the tests.
func DropTemplates() error {
	templates.Lock()
	defer templates.Unlock()
	var errs []error
	for _, drop := range templates.drop {
		errs = append(errs, drop())
	}
	templates.drop = nil
	return errors.Join(errs...)
}
