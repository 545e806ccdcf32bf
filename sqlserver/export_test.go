package sqlserver

import (
	"context"
	"io/fs"
)

// SchemaFiles are the migrations that are built into the program.
var SchemaFiles fs.FS = schemaFiles

// Passes tells whether a transaction that failed with err is run again.
func Passes(err error) bool { return passes(err) }

// MaxAtOnce is how many records one statement changes at most.
const MaxAtOnce = maxAtOnce

// EnsureFrom is Ensure of a program with these migrations.
func (s *Store) EnsureFrom(ctx context.Context, files fs.FS) error { return s.ensure(ctx, files) }

// Expand puts the store's names into a text with the default ones.
func (s *Store) Expand(text string) string { return s.sql.expand(text) }
