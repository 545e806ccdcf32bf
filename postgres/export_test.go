package postgres

import (
	"context"
	"io/fs"
)

// SchemaFiles are the migrations that are built into the program.
var SchemaFiles fs.FS = schemaFiles

// EnsureFrom is Ensure of a program with these migrations.
func (s *Store) EnsureFrom(ctx context.Context, files fs.FS) error { return s.ensure(ctx, files) }
