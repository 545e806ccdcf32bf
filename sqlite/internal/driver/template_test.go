package driver_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/engine"
)

var templates struct {
	sync.Mutex
	content []byte
}

// template is an empty database with the schema. A copy of it is faster than a new schema for each sentence.
func template(t *testing.T) []byte {
	t.Helper()
	templates.Lock()
	defer templates.Unlock()
	if templates.content == nil {
		path := filepath.Join(t.TempDir(), "template.db")
		s := openFile(t, path, engine.Config{}, &atomic.Int64{})
		require.NoError(t, errors.Join(s.Ensure(t.Context()), s.Close()))
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		templates.content = content
	}
	return templates.content
}
