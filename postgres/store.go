package postgres

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres/internal/conns"
	"github.com/outmill/outmill/postgres/internal/listen"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var (
	_ outmill.Store = (*Store)(nil)
	_ roles.Waker   = (*Store)(nil)

	_ roles.Repairs  = (*Store)(nil)
	_ roles.Examiner = (*Store)(nil)
	_ roles.Pauses   = (*Store)(nil)

	_ roles.Idle = (*Store)(nil)

	_ storekit.TenantTurns = (*Store)(nil)
)

// Store is an outbox in one PostgreSQL database. It also implements roles.Joins,
// roles.Sagas, roles.Pauses, roles.Repairs and
// storekit.TenantTurns. All methods are safe for concurrent use.
type Store struct {
	joinEngine
	sagaEngine
	finder
	workbench
	conns *conns.Conns
	// closeWithin is storekit.CloseWithin, except in tests.
	closeWithin time.Duration
	config      Config
	logger      *storekit.Log
	sql         *queries
	// relaxed are the settings of transactions that do not wait for the disk.
	relaxed  string
	turns    storekit.TopicRotation
	fair     storekit.FairTopics
	tenants  storekit.TurnRotation
	busy     storekit.BusyTopics
	notifier storekit.Notifier
	notices  *listen.Notices
	// inUse are the callers' transactions in which an append is running.
	inUse storekit.TxLocks
	// claiming are the topics of groups on which a claim holds the topic's lock.
	claiming storekit.TxLocks
	routes   storekit.KnownRoutes
	pauses   storekit.KnownPauses
	// lanesNow are the schema's settings of its lanes, as last read.
	lanesNow atomic.Pointer[lanes]
	// serverSince is the start time of the server that was checked last, in microseconds; 0:
	// none was.
	serverSince atomic.Int64
	// maintained is this process's state of the upkeep of the log.
	maintained maintained
	// largeRows: the last claim met rows of the log that were larger than their share of its
	// byte budget.
	largeRows atomic.Bool
	// logUsed: records were claimed from the log since this process's last turn of the upkeep.
	logUsed atomic.Bool
	// largeSegment is the constant largeSegment, except in tests.
	largeSegment int64
	toldOfGrowth atomic.Int64
	// dumpWithin is the constant dumpWithin, except in tests.
	dumpWithin time.Duration
	// refusals has the pauses of each segment, and segmentLooks the line at which the search
	// for lines that need the segment continues.
	refusals     [segments]refusals
	segmentLooks [segments]cursor
	forget       forgetting
	// batchesKept is the size of the batches' tables after the last truncation, batchesRefused
	// when a refused truncation is tried again, and dropped the line up to which finished
	// batches were deleted.
	batchesKept    atomic.Int64
	batchesRefused refusals
	dropped        atomic.Int64
	// checkedUpTo is the line up to which lines were compared with the sequence.
	checkedUpTo atomic.Int64
	// reaped is the line up to which ended leases were searched for.
	reaped atomic.Int64
	// hasRows: the last claim has met rows outside the log.
	hasRows atomic.Bool
	// kinds are the kinds of records that Stats has met: see recordKinds.
	kinds atomic.Int32
	// atOnce limits the steps of work that one transaction does not finish.
	atOnce storekit.BatchSize
	// refs are the batches of records that were claimed from the log.
	refs   refs
	rests  rests
	rounds rounds
	life   storekit.Lifecycle
}

// New returns a store on a pool that the user opened and closes. It does not connect. A nil
// logger logs nothing.
//
// The pool's own settings apply. Behind a proxy that pools transactions, set the pool's
// DefaultQueryExecMode to QueryExecModeExec or QueryExecModeCacheDescribe, and set
// Config.ListenURL.
func New(pool *pgxpool.Pool, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("%w: postgres.New: pool is nil: want a pool from pgxpool.New", outmill.ErrInvalidConfig)
	}
	return newStore(conns.OfPgx(pool), config, logger)
}

func newStore(on *conns.Conns, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	s := &Store{
		conns:   on,
		config:  config,
		logger:  storekit.NewLog(logger, config.Name, config.AppendLogLevel),
		fair:    storekit.NewFairTopics(config.FairTopics),
		sql:     &queries{schema: config.Schema, prefix: config.TablePrefix},
		relaxed: sqlRelaxed, dumpWithin: dumpWithin, largeSegment: largeSegment,
		closeWithin: storekit.CloseWithin,
	}
	if config.DurableSettle {
		s.relaxed = sqlSettings
	}
	for i := range s.segmentLooks {
		s.segmentLooks[i].begin()
	}
	s.dropped.Store(math.MinInt64)
	s.checkedUpTo.Store(math.MinInt64)
	s.reaped.Store(math.MinInt64)
	s.joinEngine = storekit.NewJoinEngine(joining{s}, config.MaxPayload)
	s.sagaEngine = sqlkit.NewSagaEngine(sagaKeeping{s}, config.MaxPayload)
	s.finder = storekit.NewFinder(finding{s})
	s.workbench = storekit.NewWorkbenchEngine(bench{finding{s}}, config.MaxPayload)
	var err error
	if s.notices, err = s.newNotices(); err != nil {
		return nil, err
	}
	return s, nil
}

// Pool returns the pool of connections, for the user's own tables. If the store opened the
// pool, Close closes it. It returns nil for a store of NewFromDB.
func (s *Store) Pool() *pgxpool.Pool { return s.conns.Pgx() }

// Name identifies the store in logs, metrics and deliveries.
func (s *Store) Name() string { return s.config.Name }

// Close ends the store's background work, and closes the pool if the store opened it. Calls that
// still have a connection then get 5 s; after that Close closes their connections, which rolls their
// transactions back, and returns an error if a caller does not return its connection. Close may be
// called more than once. Afterwards other methods return outmill.ErrClosed.
func (s *Store) Close() error {
	if !s.life.End() {
		return nil
	}
	s.notices.Close()
	s.notifier.Close()
	return s.conns.Close(s.Name(), s.closeWithin)
}

// Attach adds a worker that leaves before the store closes. See storekit.Attacher.
func (s *Store) Attach(leave func(ctx context.Context)) (detach func(), err error) {
	return s.life.Attach(leave)
}

func (s *Store) usable(ctx context.Context) error { return s.life.Usable(ctx) }

// ready does the checks before a transaction begins. It checks the schema's version until it
// was right once.
func (s *Store) ready(ctx context.Context) error {
	return s.life.Ready(ctx, func(ctx context.Context) error {
		if err := s.checkDates(ctx); err != nil {
			return err
		}
		if !s.config.EnsureSchema {
			return s.checkAtOnce(ctx)
		}
		if err := s.ensure(ctx, schemaFiles); err != nil {
			return err
		}
		return s.readLanes(ctx)
	})
}
