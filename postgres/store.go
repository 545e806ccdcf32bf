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
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var (
	_ outmill.Store  = (*Store)(nil)
	_ storekit.Waker = (*Store)(nil)

	_ storekit.Operator = (*Store)(nil)
)

// Store is an outbox in one PostgreSQL database. All methods may be called
// concurrently. It is also a storekit.Joins, storekit.Sagas and storekit.Operator, and has
// their calls and List.
type Store struct {
	joinEngine
	sagaEngine
	finder
	pool     *pgxpool.Pool
	ownsPool bool
	config   Config
	logger   *storekit.Log
	sql      *queries
	// relaxed are the settings of the transactions that need not wait for the disk.
	relaxed  string
	turns    storekit.TopicRotation
	busy     storekit.BusyTopics
	notifier storekit.Notifier
	notices  *notices
	// inUse are the callers' transactions that are being appended to.
	inUse storekit.TxLocks
	// claiming are the groups' topics that are being claimed from with the topic's
	// lock.
	claiming storekit.TxLocks
	routes   storekit.KnownRoutes
	// lanesNow is what the schema said last of its lanes.
	lanesNow atomic.Pointer[lanes]
	// serverSince is since when the server runs that was checked last, in microseconds;
	// 0: none was.
	serverSince atomic.Int64
	// maintained is what this process knows of the upkeep of the log.
	maintained maintained
	// largeRows: the last claim met rows of the log that are larger than their share of
	// its bytes.
	largeRows atomic.Bool
	// logUsed: something was claimed from the log since this process had the upkeep's turn.
	logUsed atomic.Bool
	// largeSegment is largeSegment, but for tests.
	largeSegment int64
	toldOfGrowth atomic.Int64
	// dumpWithin is dumpWithin, but for tests.
	dumpWithin time.Duration
	// refusals are of each segment, and segmentLooks where the search for what is needed
	// of it goes on.
	refusals     [segments]refusals
	segmentLooks [segments]cursor
	forget       forgetting
	// batchesKept is how large their tables were when they were truncated last,
	// batchesRefused when that is tried again, and dropped the line up to which those that
	// are over were deleted.
	batchesKept    atomic.Int64
	batchesRefused refusals
	dropped        atomic.Int64
	// checkedUpTo is the line up to which lines were compared with the sequence.
	checkedUpTo atomic.Int64
	// reaped is the line up to which leases that have ended were looked for.
	reaped atomic.Int64
	// atOnce bounds the steps of what one transaction does not finish.
	atOnce storekit.BatchSize
	// refs are of what was claimed from the log.
	refs   refs
	rests  rests
	rounds rounds
	life   storekit.Lifecycle
}

// New makes a store on a pool that the user made and closes. It does not
// connect. A nil logger logs nothing.
//
// The pool's own settings hold. Behind a proxy that pools transactions give it
// a DefaultQueryExecMode of QueryExecModeExec or QueryExecModeCacheDescribe,
// and set Config.ListenURL.
func New(pool *pgxpool.Pool, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("%w: postgres.New: pool is nil: want what pgxpool.New returns", outmill.ErrInvalidConfig)
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	listen, err := listenConfig(pool, config)
	if err != nil {
		return nil, err
	}
	s := &Store{
		pool:    pool,
		config:  config,
		logger:  storekit.NewLog(logger, config.Name, config.AppendLogLevel),
		sql:     &queries{schema: config.Schema, prefix: config.TablePrefix},
		relaxed: sqlRelaxed, dumpWithin: dumpWithin, largeSegment: largeSegment,
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
	s.notices = newNotices(s, listen)
	return s, nil
}

// Pool returns the pool of connections, for the user's own tables. It stays
// open until Close if the store opened it.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Name identifies the store in logs, metrics and deliveries.
func (s *Store) Name() string { return s.config.Name }

// Close ends what the store started, and the pool if the store opened it. It
// may be called more than once. Other methods then return outmill.ErrClosed.
func (s *Store) Close() error {
	if !s.life.End() {
		return nil
	}
	s.notices.close()
	s.notifier.Close()
	if s.ownsPool {
		s.pool.Close()
	}
	return nil
}

func (s *Store) usable(ctx context.Context) error { return s.life.Usable(ctx) }

// ready checks what can be checked before a transaction begins; the schema's
// version until it was found right once.
func (s *Store) ready(ctx context.Context) error {
	return s.life.Ready(ctx, func(ctx context.Context) error {
		if err := s.checkOrEnsure(ctx); err != nil {
			return err
		}
		return s.readLanes(ctx)
	})
}

func (s *Store) checkOrEnsure(ctx context.Context) error {
	if s.config.EnsureSchema {
		return s.ensure(ctx, schemaFiles)
	}
	return s.checkSchema(ctx)
}
