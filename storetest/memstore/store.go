// Package memstore is an outmill.Store in memory, for tests of programs that use Outmill:
//
//	db := memstore.NewDatabase()
//	store := memstore.New(db, memstore.Options{})
//
// It is package engine on the driver in memory (engine/memdriver), so it has all roles that the engine has:
// transactions, joins, inbox and sagas, pauses, repairs and audit. Begin transactions of your own with
// [Database.Begin], move the clock with [Database.Elapse], and have the database answer late with
// [Database.Delay]. It is not for production: all records are lost when the program ends, and each claim reads
// all records of its topics.
package memstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/memdriver"
	"github.com/outmill/outmill/roles"
)

// Options has the settings of a store. The zero value is ready to use. The default of Name is "memory".
type Options = engine.Config

// Store is a store on a Database, as one process would have it. It is safe for concurrent use.
type Store struct {
	*engine.Engine
	db memdriver.Driver
}

var _ outmill.Store = (*Store)(nil)

// New returns a store on the database. Call Ensure first, as for every store. Several stores may share a database,
// as several processes do. Each hears the hints of all (see roles.Waker).
func New(db *Database, options Options) *Store {
	options.Name = cmp.Or(options.Name, "memory")
	memory := memdriver.Driver{Database: db.Database}
	return &Store{engine.New(memory, options), memory}
}

// RawClaims returns the raw claims of this store. See roles.Raw.
func (s *Store) RawClaims(queue outmill.Queue) roles.RawClaims { return s.RawOf(s, queue) }

// WithTx returns a context that carries the transaction: methods that work in transactions take part in it. The
// caller commits or rolls back.
func (s *Store) WithTx(ctx context.Context, tx *Tx) context.Context { return s.db.WithTx(ctx, tx) }

// Tx returns the transaction that ctx carries for this store, such as the transaction of Transact. It reports
// false if there is none.
func (s *Store) Tx(ctx context.Context) (*Tx, bool) {
	found, err := s.TxOf(ctx)
	tx, ok := found.(*Tx)
	return tx, err == nil && ok && tx != nil
}

// Database has the records of the stores that share it, until the program ends. It is safe for concurrent use.
type Database struct{ *memdriver.Database }

// Tx is a transaction. Its changes become visible when it commits. It is safe for concurrent use.
type Tx = memdriver.Tx

// NewDatabase returns an empty database.
func NewDatabase() *Database { return &Database{memdriver.New()} }

// errGuarded is the error of a unique index that a user has made.
var errGuarded = errors.New("another saga has the same value in a field that is unique")

// GuardSagas makes a field of the states of this type of sagas unique, as an index of a user does on other
// engines.
func (d *Database) GuardSagas(kind, field string) {
	value := func(e driver.Entry) string {
		ofKind, state := engine.SagaState(e)
		var fields map[string]json.RawMessage
		if ofKind != kind || json.Unmarshal(state, &fields) != nil {
			return ""
		}
		return string(fields[field])
	}
	d.Guard(func(changed, other driver.Entry) error {
		if wanted := value(changed); wanted != "" && wanted == value(other) {
			return errGuarded
		}
		return nil
	})
}
