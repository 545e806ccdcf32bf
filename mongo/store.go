package mongo

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

var (
	_ outmill.Store = (*Store)(nil)
	_ roles.Waker   = (*Store)(nil)

	_ roles.Repairs  = (*Store)(nil)
	_ roles.Examiner = (*Store)(nil)
	_ roles.Pauses   = (*Store)(nil)
	_ roles.Idle     = (*Store)(nil)

	_ storekit.TenantTurns = (*Store)(nil)
)

// Store is an outbox in one MongoDB database. All methods are safe for concurrent use. Store is
// also a roles.Joins, a roles.Sagas, a roles.Pauses, a roles.Repairs
// and a storekit.TenantTurns, and has their methods, and List.
type Store struct {
	joinEngine
	finder
	workbench
	sagaKeeper
	client     *driver.Client
	ownsClient bool
	db         *driver.Database
	config     Config
	logger     *storekit.Log

	records, meta, dedup, lanes, openings, locks, joins, members, counts, workers, endings, inbox, audit *driver.Collection

	turns    storekit.TopicRotation
	fair     storekit.FairTopics
	tenants  storekit.TurnRotation
	busy     storekit.BusyTopics
	trails   trails
	laneSeen laneSeen
	// pauses are the pauses that the store read last.
	pauses atomic.Pointer[roles.PauseList]
	// asideAtOnce bounds how many records a claim brings back, and how many it reads at once behind
	// paused ones.
	asideAtOnce int
	// atOnce limits the steps of work that one transaction does not finish.
	atOnce storekit.BatchSize
	// turnFor is the initial length of a turn at a topic of a group.
	turnFor time.Duration
	// busyFor is how long all claims must be full before the store closes the change stream.
	busyFor  time.Duration
	notifier storekit.Notifier
	// changes is the change stream that the store has opened, or nil.
	changes atomic.Pointer[changes]
	// ofCluster: the store shares the change stream of the whole cluster.
	ofCluster atomic.Bool
	// rest is what the store knows of its rest.
	rest    standing
	undoing *undoing
	clock   clock
	// inUse locks the callers' transactions to which an append writes, and the topics from which
	// this process claims in order.
	inUse storekit.TxLocks
	life  storekit.Lifecycle
}

// New makes a store on the user's client, which the user disconnects. If client is nil, the store
// makes a client for DefaultURI, and Close disconnects it. New does not connect. A nil logger
// logs nothing.
//
// The store writes with write concern majority, reads from the primary, and encodes documents as
// the driver does by default, whatever the client's settings are. The client's settings for
// retries, timeouts and the pool apply.
func New(client *driver.Client, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	owns := client == nil
	if owns {
		var err error
		if client, err = driver.Connect(options.Client().ApplyURI(DefaultURI)); err != nil {
			return nil, fmt.Errorf("outmill/mongo: connect: %w", err)
		}
	}
	config.setDefaults()
	db := client.Database(config.Database, databaseOptions())
	s := &Store{
		client: client, ownsClient: owns, db: db, config: config, turnFor: firstTurn, asideAtOnce: asideAtOnce,
		logger: storekit.NewLog(logger, config.Name, config.AppendLogLevel), fair: storekit.NewFairTopics(config.FairTopics),
	}
	s.records, s.meta, s.dedup = s.collection("records"), s.collection("meta"), s.collection("dedup")
	s.lanes, s.openings, s.locks = s.collection("lanes"), s.collection("openings"), s.collection("locks")
	s.joins, s.members, s.counts = s.collection("joins"), s.collection("join_members"), s.collection("join_counts")
	s.workers, s.endings = s.collection("workers"), s.collection("endings")
	s.inbox = s.collection("inbox")
	s.audit = s.collection("audit")
	s.joinEngine = storekit.NewJoinEngine(joining{s}, config.MaxPayload)
	s.finder = storekit.NewFinder(finding{s})
	s.workbench = storekit.NewWorkbenchEngine(bench{finding{s}}, config.MaxPayload)
	s.sagaKeeper = s.newSagas()
	s.undoing, s.busyFor = newUndoing(), busyFor
	return s, nil
}

// databaseOptions returns the options of the store's database, which override the client's: a
// user's own encoder would write documents that the store's queries do not find.
func databaseOptions() *options.DatabaseOptionsBuilder {
	return options.Database().
		SetWriteConcern(writeconcern.Majority()).SetReadConcern(readconcern.Local()).SetReadPreference(readpref.Primary()).
		SetRegistry(bson.NewRegistry()).SetBSONOptions(&options.BSONOptions{})
}

func (s *Store) collection(name string) *driver.Collection {
	return s.db.Collection(s.config.CollectionName(name))
}

// Client returns the client, for the user's own collections. If the store made the client, it
// stays connected until Close.
func (s *Store) Client() *driver.Client { return s.client }

// Database returns the database of the store's collections. The handle writes with write concern
// majority, and reads from the primary.
func (s *Store) Database() *driver.Database { return s.db }

// Name identifies the store in logs, metrics and deliveries.
func (s *Store) Name() string { return s.config.Name }

// Close stops the store's background work, and disconnects the client if the store made it. If the
// store is still giving back what claims could not hand out, Close tries that once more, for at most
// 1 second. Close may be called more than once. Afterwards all other methods return outmill.ErrClosed.
func (s *Store) Close() error {
	if !s.life.End() {
		return nil
	}
	streams.leave(s)
	s.undoing.close()
	s.notifier.Close()
	if !s.ownsClient {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), storekit.CloseWithin)
	defer cancel()
	if err := s.client.Disconnect(ctx); err != nil {
		return fmt.Errorf("outmill/mongo: close %s: %w", s.Name(), err)
	}
	return nil
}

// Attach adds a worker that leaves before the store closes. See storekit.Attacher.
func (s *Store) Attach(leave func(ctx context.Context)) (detach func(), err error) {
	return s.life.Attach(leave)
}

func (s *Store) usable(ctx context.Context) error { return s.life.Usable(ctx) }

// ready checks that the store is open, and checks the version of the schema until it was found
// right once.
func (s *Store) ready(ctx context.Context) error { return s.life.Ready(ctx, s.checkOrEnsure) }

func (s *Store) checkOrEnsure(ctx context.Context) error {
	if s.config.EnsureSchema {
		return s.ensure(ctx)
	}
	_, err := s.loadState(ctx)
	return err
}
