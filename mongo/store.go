package mongo

import (
	"context"
	"fmt"
	"sync"
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
	"github.com/outmill/outmill/storekit"
)

var (
	_ outmill.Store  = (*Store)(nil)
	_ storekit.Waker = (*Store)(nil)

	_ storekit.Operator = (*Store)(nil)
)

// Store is an outbox in one MongoDB database. All methods may be called
// concurrently. It is also a storekit.Joins, storekit.Sagas and storekit.Operator, and has
// their calls and List.
type Store struct {
	joinEngine
	finder
	client     *driver.Client
	ownsClient bool
	db         *driver.Database
	config     Config
	logger     *storekit.Log

	records, meta, dedup, lanes, openings, locks, joins, members, counts, workers, endings, inbox, ackedSteps *driver.Collection

	turns    storekit.TopicRotation
	busy     storekit.BusyTopics
	trails   trails
	laneSeen laneSeen
	// turnFor is how long a turn at a line lasts at first.
	turnFor time.Duration
	// busyFor is how long all claims are full before the change stream is closed.
	busyFor  time.Duration
	notifier storekit.Notifier
	// changes is the change stream that was joined, if any.
	changes atomic.Pointer[changes]
	undoing *undoing
	clock   clock
	// prepared are the types of sagas whose collections were found or made.
	prepared sync.Map
	// inUse are the callers' transactions that are being appended to, and the
	// lines that this process claims from in order.
	inUse storekit.TxLocks
	life  storekit.Lifecycle
}

// closeWithin bounds how long Close waits for the operations of a client that
// the store opened.
const closeWithin = 5 * time.Second

// New makes a store on a client that the user made and disconnects; where it
// is nil, on one of the store's own to DefaultURI, which Close disconnects. It
// does not connect. A nil logger logs nothing.
//
// The store writes with write concern majority, reads from the primary, and
// encodes as the driver does by default, whatever the client is set to; the
// client's retries of reads and writes, its timeouts and its pool hold.
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
		client: client, ownsClient: owns, db: db, config: config, turnFor: firstTurn,
		logger: storekit.NewLog(logger, config.Name, config.AppendLogLevel),
	}
	s.records, s.meta, s.dedup = s.collection("records"), s.collection("meta"), s.collection("dedup")
	s.lanes, s.openings, s.locks = s.collection("lanes"), s.collection("openings"), s.collection("locks")
	s.joins, s.members, s.counts = s.collection("joins"), s.collection("join_members"), s.collection("join_counts")
	s.workers, s.endings = s.collection("workers"), s.collection("endings")
	s.inbox, s.ackedSteps = s.collection("inbox"), s.collection("acked_steps")
	s.joinEngine = storekit.NewJoinEngine(joining{s}, config.MaxPayload)
	s.finder = storekit.NewFinder(finding{s})
	s.undoing, s.busyFor = newUndoing(), busyFor
	return s, nil
}

// databaseOptions are those of the store's database, whatever the client's are: an
// encoder of the user's would write other documents than the store looks for.
func databaseOptions() *options.DatabaseOptionsBuilder {
	return options.Database().
		SetWriteConcern(writeconcern.Majority()).SetReadConcern(readconcern.Local()).SetReadPreference(readpref.Primary()).
		SetRegistry(bson.NewRegistry()).SetBSONOptions(&options.BSONOptions{})
}

func (s *Store) collection(name string) *driver.Collection {
	return s.db.Collection(s.config.CollectionName(name))
}

// Client returns the client, for the user's own collections. It stays
// connected until Close if the store connected it.
func (s *Store) Client() *driver.Client { return s.client }

// Database returns the database that has the store's collections. What is
// written by it has write concern majority, and is read from the primary.
func (s *Store) Database() *driver.Database { return s.db }

// Name identifies the store in logs, metrics and deliveries.
func (s *Store) Name() string { return s.config.Name }

// Close ends what the store started, and the client if the store connected it.
// It may be called more than once. Other methods then return
// outmill.ErrClosed.
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
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	if err := s.client.Disconnect(ctx); err != nil {
		return fmt.Errorf("outmill/mongo: close %s: %w", s.Name(), err)
	}
	return nil
}

func (s *Store) usable(ctx context.Context) error { return s.life.Usable(ctx) }

// ready checks what can be checked before an operation begins; the schema's
// version until it was found right once.
func (s *Store) ready(ctx context.Context) error { return s.life.Ready(ctx, s.checkOrEnsure) }

func (s *Store) checkOrEnsure(ctx context.Context) error {
	if s.config.EnsureSchema {
		return s.ensure(ctx)
	}
	_, err := s.loadState(ctx)
	return err
}
