package driver

import (
	"context"
	"slices"
	"strings"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/postgres/internal/conns"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// PoolOf has the connections of a pool of pgx, and PoolOfDB those of one of database/sql.
var PoolOf, PoolOfDB = conns.OfPgx, conns.OfSQL

// IsOfLogDriver reports whether a statement is one of log_driver.sql.
func IsOfLogDriver(name string) bool {
	statements, err := sqlkit.NamedStatements(statementFiles, "statements/log_driver.sql")
	if err != nil {
		panic(err)
	}
	_, listed := statements[name]
	return listed || strings.HasPrefix(name, insertInto)
}

// Texts returns all statements by their names, as PostgreSQL gets them, also with locks where they differ.
func (d *Driver) Texts() (names []string, texts map[string]string) {
	texts = map[string]string{}
	for name := range templates() {
		texts[name] = d.names.text(name, false)
		if locked := d.names.text(name, true); locked != texts[name] {
			texts[name+", with locks"] = locked
		}
	}
	for name := range texts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, texts
}

// ForgetRefusals has the next claim of each line be one of its own, if it can.
func (d *Driver) ForgetRefusals() {
	d.log.refused.mu.Lock()
	defer d.log.refused.mu.Unlock()
	d.log.refused.lines = nil
}

// Tend is Maintain with the error of a role that lacks rights.
func (d *Driver) Tend(ctx context.Context) (more bool, err error) { return d.log.keeper.Maintain(ctx) }

// RecordsOnly has appends write records.
func (d *Driver) RecordsOnly() { d.recordsOnly = true }

// Copies sets whether appends to the log copy, whatever their size.
func (d *Driver) Copies(yes bool) { d.copies = func([]driver.NewRow) bool { return yes } }

// Passes reports whether the same transaction may succeed if it runs again.
var Passes = passes
