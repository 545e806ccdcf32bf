// Package memstore is an outmill.Store in memory, for tests of programs that use Outmill:
//
//	db := memstore.NewDatabase()
//	store := memstore.New(db, memstore.Options{})
//
// It keeps the contract of a queue, which package storetest tests, and the contract of
// transactions, inbox and sagas, which package txtest tests. It pauses and resumes, and repairs
// dead records. It has no joins. Begin transactions of your own with [Database.Begin], move
// the clock with [Database.Elapse], and have the database answer late with [Database.Delay].
// It is not for production: all records are lost when the program ends, and each claim reads
// all records.
package memstore

import (
	"context"
	"fmt"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
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
	// RetainAudit is how long the notes of what operators changed are kept. Default
	// storekit.AuditRetention.
	RetainAudit time.Duration
	// FairTopics are the topics, or patterns of topics such as "orders.*", whose claims serve the
	// tenants in turn: see storekit.TenantTurns. Default none.
	FairTopics []string
}

// Store is a store on a Database, as one process would have it. It is safe for concurrent
// use.
type Store struct {
	storekit.Finder
	workbench
	db      *Database
	options Options
	life    storekit.Lifecycle
	pauses  storekit.KnownPauses
	fair    storekit.FairTopics
	turns   storekit.TurnRotation
	// ctx ends when the store is closed.
	ctx context.Context
	end context.CancelFunc
}

var (
	_ outmill.Store       = (*Store)(nil)
	_ storekit.Waker      = (*Store)(nil)
	_ storekit.Transactor = (*Store)(nil)
	_ storekit.Inbox      = (*Store)(nil)
	_ storekit.Sagas      = (*Store)(nil)
	_ storekit.Operator   = (*Store)(nil)
	_ storekit.Pauses     = (*Store)(nil)
	_ storekit.Workbench  = (*Store)(nil)
	_ storekit.Audit      = (*Store)(nil)
	_ storekit.Rester     = (*Store)(nil)

	_ storekit.TenantTurns = (*Store)(nil)
)

// New returns a store on the database. Call Ensure first, as for every store. Several stores
// may share a database, as several processes do.
func New(db *Database, options Options) *Store {
	if options.Name == "" {
		options.Name = "memory"
	}
	if options.DedupWindow <= 0 {
		options.DedupWindow = DefaultDedupWindow
	}
	if options.RetainAudit <= 0 {
		options.RetainAudit = storekit.AuditRetention
	}
	ctx, end := context.WithCancel(context.Background())
	s := &Store{db: db, options: options, fair: storekit.NewFairTopics(options.FairTopics), ctx: ctx, end: end}
	s.Finder = storekit.NewFinder(finding{s})
	s.workbench = storekit.NewWorkbenchEngine(bench{finding{s}}, 0)
	return s
}

// Name identifies the store. See outmill.Writer.
func (s *Store) Name() string { return s.options.Name }

// Close closes the store, and keeps the records of the database. See outmill.Store.
func (s *Store) Close() error {
	s.life.End()
	s.end()
	return nil
}

// Attach adds a worker that leaves before the store closes. See storekit.Attacher.
func (s *Store) Attach(leave func(ctx context.Context)) (detach func(), err error) {
	return s.life.Attach(leave)
}

// Ensure makes the database ready. See outmill.Schema.
func (s *Store) Ensure(ctx context.Context) error {
	if err := s.usable(ctx); err != nil {
		return failed("ensure", err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.db.made = true
	return nil
}

// Statements returns none, because nothing but Ensure makes a database in memory.
func (*Store) Statements() []string { return nil }

// StatementsFrom returns none. See Statements.
func (*Store) StatementsFrom(version int) ([]string, error) {
	return nil, storekit.CheckSchemaVersion(version, 1)
}

// do runs fn under the database's lock.
func (s *Store) do(ctx context.Context, operation string, fn func(d *Database, now time.Time) error) error {
	if err := s.usable(ctx); err != nil {
		return failed(operation, err)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if !s.db.made {
		return failed(operation, fmt.Errorf("%w: call Ensure first", outmill.ErrSchemaMissing))
	}
	err := fn(s.db, s.db.now())
	s.pauses.Keep(s.db.pauses)
	return failed(operation, err)
}

// count is do for a call that changes up to limit records.
func (s *Store) count(ctx context.Context, operation string, limit int, fn func(d *Database, now time.Time) int) (n int, err error) {
	if err := storekit.CheckLimit(limit); err != nil {
		return 0, failed(operation, err)
	}
	err = s.do(ctx, operation, func(d *Database, now time.Time) error {
		n = fn(d, now)
		return nil
	})
	return n, err
}

// failed wraps the error with the name of the operation.
func failed(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("memstore: %s: %w", operation, err)
}

var errTxEnded = fmt.Errorf("%w: it has been committed or rolled back", outmill.ErrInvalidTx)
