package postgres

import (
	"context"
	"io/fs"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres/internal/driver"
	"github.com/outmill/outmill/storekit"
)

// Defaults returns the configuration of a program that sets nothing.
func Defaults() Config {
	var c Config
	c.setDefaults()
	return c
}

// AtOnce limits the steps of work that one transaction does not finish.
func AtOnce(config Config, records int) Config {
	config.atOnce = storekit.BatchSize(records)
	return config
}

// Impatient sets how long Close waits for calls, and after which silence the listening connection
// is asked whether it still works.
func (s *Store) Impatient(closeWithin, heartbeat time.Duration) {
	s.driver.Impatient(closeWithin, heartbeat)
}

// CloseWithin is the default of Impatient.
const CloseWithin = storekit.CloseWithin

// ToRecord moves a row of the log to the records.
func (s *Store) ToRecord(ctx context.Context, id outmill.WorkItemID) error {
	return s.driver.ToRecord(ctx, id)
}

// SchemaFiles are the migrations that are built into the program.
func SchemaFiles() fs.FS { return driver.SchemaFiles() }

// EnsureFrom is Ensure of a program with these migrations.
func (s *Store) EnsureFrom(ctx context.Context, files fs.FS) error {
	return s.driver.EnsureFrom(ctx, files)
}
