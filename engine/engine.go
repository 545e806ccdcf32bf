package engine

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// The settings of Config where none is set.
const (
	defaultDedupWindow = 24 * time.Hour
	defaultRetainJoins = 24 * time.Hour
	defaultReadBytes   = 64 << 20
)

// Config has the settings that all stores share.
type Config struct {
	// Name identifies the store in logs, metrics and deliveries.
	Name string
	// Retain is how long processed records stay; 0 deletes them on ack.
	Retain time.Duration
	// DedupWindow is how long a dedup key is remembered; 0 is 24 hours.
	DedupWindow time.Duration
	// MaxPayload is the largest payload in bytes that Append takes; 0 is the limit of the driver.
	MaxPayload int
	// DurableSettle has claims, acks and extensions wait for the disk, as all other writes do, where a driver does not do so by default.
	DurableSettle bool
	// RetainJoins is how long joins stay after their end; 0 is 24 hours.
	RetainJoins time.Duration
	// RetainAudit is how long the audit keeps an entry; 0 is storekit.AuditRetention.
	RetainAudit time.Duration
	// ReadBytes is how much content a claim without a MaxBytes reads at a time; 0 is 64 MiB.
	ReadBytes int
	// Logger gets a line for each append, at AppendLogLevel, and for faults. nil logs nothing.
	Logger         watermill.LoggerAdapter
	AppendLogLevel slog.Leveler
	// FairTopics are the topics, or patterns of topics as outmill.Topics.Include has them, whose tenants have lines of their
	// own, so that one with many records does not hold up the others. The database keeps them: see SetFairTopics.
	FairTopics []string
	// EnsureSchema has the first call that begins a transaction of its own call Ensure. Default: the user calls Ensure.
	EnsureSchema bool
	// AtOnce makes the steps of large work small, for tests.
	AtOnce storekit.BatchSize
}

// Engine is a store on a driver. It is safe for concurrent use.
type Engine struct {
	db       driver.DB
	config   Config
	life     storekit.Lifecycle
	log      *storekit.Log
	routes   knownRoutes
	pauses   knownPauses
	topics   topicTurns
	fair     atomic.Pointer[fairTopics]
	serves   storekit.FairTopics
	parts    partRotation
	busy     busyTopics
	claiming storekit.TxLocks
	notifier *storekit.Notifier
	stands   standing
	empty    emptyLooks
	// open ends when the store is closed.
	open context.Context
	end  context.CancelFunc
}

// New returns the store on db. Its Close closes db.
func New(db driver.DB, config Config) *Engine {
	config.DedupWindow = cmp.Or(max(config.DedupWindow, 0), defaultDedupWindow)
	config.RetainJoins = cmp.Or(max(config.RetainJoins, 0), defaultRetainJoins)
	config.ReadBytes = cmp.Or(max(config.ReadBytes, 0), defaultReadBytes)
	config.RetainAudit = cmp.Or(max(config.RetainAudit, 0), storekit.AuditRetention)
	config.FairTopics = slices.Compact(slices.Sorted(slices.Values(config.FairTopics)))
	e := &Engine{db: db, config: config, log: storekit.NewLog(config.Logger, config.Name, config.AppendLogLevel)}
	e.serves = storekit.NewFairTopics(config.FairTopics)
	e.open, e.end = context.WithCancel(context.Background())
	// Its channel is made now, and not by the first reader: Close may be called outside of the reader's synctest bubble.
	_ = e.open.Done()
	e.notifier = &storekit.Notifier{}
	if shares, ok := db.(driver.Notifying); ok {
		e.notifier = shares.Notifier()
	}
	return e
}

// Name returns Config.Name. See outmill.Store.
func (e *Engine) Name() string { return e.config.Name }

// TxOf returns the transaction that ctx carries. See outmill.Writer.
func (e *Engine) TxOf(ctx context.Context) (any, error) { return e.db.TxOf(ctx) }

// Attach adds a worker that leaves before the store closes. See storekit.Attacher.
func (e *Engine) Attach(leave func(ctx context.Context)) (detach func(), err error) {
	return e.life.Attach(leave)
}

// Close has the workers leave, and closes the driver. See outmill.Store.
func (e *Engine) Close() error {
	if !e.life.End() {
		return nil
	}
	e.end()
	return e.db.Close()
}

// Ensure creates the schema. If the database has no setting of fair topics, it sets those of Config. See outmill.Schema.
func (e *Engine) Ensure(ctx context.Context) error {
	const operation = "ensure the schema"
	if err := e.life.Usable(ctx); err != nil {
		return e.explain(ctx, operation, err)
	}
	if err := e.db.Ensure(ctx); err != nil || len(e.config.FairTopics) == 0 {
		return e.explain(ctx, operation, err)
	}
	return e.setFairTopics(ctx, operation, false)
}

// Ready does for a store what the engine itself does before a transaction that is not a caller's: see Config.EnsureSchema.
func Ready(ctx context.Context, e *Engine, operation string) error {
	return e.explain(ctx, operation, e.ready(ctx))
}

// Usable does for a store what the engine itself does before a call in a caller's transaction: it returns an error if the store is closed,
// or ctx has ended.
func Usable(ctx context.Context, e *Engine, operation string) error {
	return e.explain(ctx, operation, e.life.Usable(ctx))
}

func (e *Engine) ready(ctx context.Context) error {
	return e.life.Ready(ctx, func(ctx context.Context) error {
		if !e.config.EnsureSchema {
			return nil
		}
		return e.Ensure(ctx)
	})
}

// Statements returns the schema. See outmill.Schema.
func (e *Engine) Statements() []string {
	statements, _ := e.db.StatementsFrom(0)
	return statements
}

// StatementsFrom returns the end of the schema. See outmill.Schema.
func (e *Engine) StatementsFrom(version int) ([]string, error) {
	statements, err := e.db.StatementsFrom(version)
	return statements, e.explain(context.Background(), "statements", err)
}

// Wake calls woken when something may have become claimable. See roles.Waker.
// It hears of what this process does, or, if the driver shares its notifier, of what all do that share it.
func (e *Engine) Wake(ctx context.Context, woken func(topic string)) {
	ctx, stop := context.WithCancel(ctx)
	leave := context.AfterFunc(e.open, stop)
	context.AfterFunc(ctx, func() { leave() })
	e.notifier.Listen(ctx, woken)
	if hears, ok := e.db.(driver.Hearer); ok {
		hears.Hear(ctx)
	}
}

// wake wakes the readers of all topics, in this process and, if the driver can, in others.
func (e *Engine) wake() {
	e.notifier.Notify()
	if others, ok := e.db.(driver.Teller); ok {
		others.Tell()
	}
}

// HearsOthers is true if the driver hears of the commits of other processes. See roles.Waker.
func (e *Engine) HearsOthers() bool {
	hears, ok := e.db.(driver.Hearer)
	return ok && hears.HearsOthers()
}

// explain adds the operation to an error, and that the store is closed where that is the cause.
func (e *Engine) explain(ctx context.Context, operation string, err error) error {
	if err == nil {
		return nil
	}
	return e.db.Explain(ctx, operation, e.life.Explain(err))
}
