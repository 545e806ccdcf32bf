package mysql

import (
	"context"
	"database/sql"

	"github.com/outmill/outmill/internal/clock"
	"github.com/outmill/outmill/mysql/internal/driver"
	"github.com/outmill/outmill/storekit"
)

// Defaults returns the configuration of a program that sets nothing.
func Defaults() Config {
	var c Config
	c.setDefaults()
	return c
}

// InSteps returns a Config with which large work is done in steps of this size.
func (c Config) InSteps(atOnce storekit.BatchSize) Config {
	c.atOnce = atOnce
	return c
}

// NewAhead is New with the clock of the context, as Open has it.
func NewAhead(ctx context.Context, db *sql.DB, config Config) *Store {
	config.setDefaults()
	return newStore(db, config, nil, driver.Config{Ahead: clock.AheadOf(ctx)})
}
