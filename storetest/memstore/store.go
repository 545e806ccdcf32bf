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
	"context"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/memdriver"
)

// DefaultDedupWindow is the default of Options.DedupWindow.
const DefaultDedupWindow = 24 * time.Hour

// Options has the settings of a store. The zero value is ready to use.
type Options struct {
	// Name identifies the store in logs, metrics and deliveries. Default "memory".
	Name string
	// Retain is how long processed records are kept; 0 deletes them on ack.
	Retain time.Duration
	// DedupWindow is how long a dedup key is remembered. Default DefaultDedupWindow.
	DedupWindow time.Duration
	// FairTopics are the topics, or patterns of topics, whose tenants have lines of their own. The database keeps them: see
	// engine.Engine.SetFairTopics.
	FairTopics []string
	// RetainAudit is how long the notes of what operators changed are kept. Default
	// storekit.AuditRetention.
	RetainAudit time.Duration
}

// Store is a store on a Database, as one process would have it. It is safe for concurrent use.
type Store struct {
	*engine.Engine
	db memdriver.Driver
}

var _ outmill.Store = (*Store)(nil)

// New returns a store on the database. Call Ensure first, as for every store. Several stores may share a database,
// as several processes do. Each hears the hints of all (see roles.Waker).
func New(db *Database, options Options) *Store {
	if options.Name == "" {
		options.Name = "memory"
	}
	if options.DedupWindow <= 0 {
		options.DedupWindow = DefaultDedupWindow
	}
	memory := memdriver.Driver{Database: db.memory}
	return &Store{engine.New(late{memory, db}, engine.Config{
		Name: options.Name, Retain: options.Retain, DedupWindow: options.DedupWindow, RetainAudit: options.RetainAudit,
		FairTopics: options.FairTopics,
	}), memory}
}

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
