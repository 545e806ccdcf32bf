package driver

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/mongo/internal/hearing"
	"github.com/outmill/outmill/storekit"
)

// txLimit is the default of the server's transactionLifetimeLimitSeconds.
const txLimit = time.Minute

const (
	firstPause = 2 * time.Millisecond
	lastPause  = 50 * time.Millisecond
	// tryWithin bounds how long work is repeated that fails for a reason that passes: enough for the election of a primary.
	tryWithin = 20 * time.Second
	// leastLosses is how often a transaction that conflicts begins at least, also if it has waited longer for its turns.
	leastLosses = 6
)

// Config says how a Driver uses a database.
type Config struct {
	// Name is that of the store, for errors.
	Name string
	// Database has the collections.
	Database string
	// Collection names the collections: it gets each of Collections, and returns a different name for each. nil names them so.
	Collection func(name string) string
	// EmbedJSON stores payloads that are JSON objects as documents, of at most MaxPayload bytes.
	EmbedJSON  bool
	MaxPayload int
	// WithoutChangeStream has readers hear only of this process: see Driver.Hear.
	WithoutChangeStream bool
	// Cluster has the stores of the client share one change stream of all databases, if the user has the right to it.
	Cluster bool
	// Logger gets a line when the change stream fails. Nil logs nothing.
	Logger watermill.LoggerAdapter
}

// Driver is a driver.DB on a MongoDB database. It is safe for concurrent use.
type Driver struct {
	client *mongo.Client
	config Config
	db     *mongo.Database
	// records are the rows with their content. lines has a document for each line, which its lock writes.
	meta, records, notes, entries, lines *mongo.Collection
	// atOnce are the records, for writes whose answer needs not wait for a majority.
	atOnce *mongo.Collection
	// id is that of the process in queues.
	id bson.ObjectID
	// inUse are the callers' sessions in which a call is running.
	inUse storekit.TxLocks
	// locks are those of lines, and of the meta document, within this process: transactions of one process wait here, and not for
	// conflicts.
	locks sync.Map
	// asked is when the driver has last read whether there are notes, and noted when there were some.
	asked, noted atomic.Int64
	hearing      *hearing.Hearing
	crowds       crowds
}

var _ driver.DB = (*Driver)(nil)

// New returns a driver on a client, which the caller disconnects. It does not connect.
func New(client *mongo.Client, config Config) *Driver {
	if config.Collection == nil {
		config.Collection = func(name string) string { return name }
	}
	db := client.Database(config.Database, databaseOptions())
	d := &Driver{client: client, config: config, db: db, id: bson.NewObjectID()}
	for i, in := range []**mongo.Collection{&d.records, &d.notes, &d.entries, &d.lines, &d.meta} {
		*in = d.collection(Collections()[i])
	}
	d.atOnce = d.records.Clone(options.Collection().SetWriteConcern(writeconcern.W1()))
	d.hearing = hearing.New(d.listener())
	return d
}

// Collections are the names of the collections, without a prefix.
func Collections() []string { return []string{"records", "notes", "entries", "lines", "meta"} }

// databaseOptions override the client's: a user's own encoder would write documents that searches do not find.
func databaseOptions() *options.DatabaseOptionsBuilder {
	return options.Database().SetReadConcern(readconcern.Local()).SetWriteConcern(writeconcern.Majority()).
		SetReadPreference(readpref.Primary()).SetRegistry(bson.NewRegistry()).SetBSONOptions(&options.BSONOptions{})
}

func (d *Driver) collection(name string) *mongo.Collection {
	return d.db.Collection(d.config.Collection(name))
}

// Database has the collections.
func (d *Driver) Database() *mongo.Database { return d.db }

// Close ends what the driver has started. The client stays connected.
func (d *Driver) Close() error {
	d.hearing.Close()
	return nil
}

// TxLimit is 60 s: the server aborts transactions that take longer.
func (d *Driver) TxLimit() time.Duration { return txLimit }

// Limits are those of a document.
func (d *Driver) Limits() storekit.RowLimits {
	const document = 16 << 20
	return storekit.RowLimits{Row: document - 64<<10, Metadata: document - 64<<10, PayloadTimes: 1}
}

// View runs fn in a transaction that only reads. A session with a snapshot would cost one command less, but the server keeps no
// snapshot for it where minSnapshotHistoryWindowInSeconds is 0. A search for lines needs no moment.
func (d *Driver) View(ctx context.Context, begin driver.Begin, fn func(driver.Tx) error) error {
	return d.repeat(ctx, func() (err error) {
		t := &tx{d: d, reads: true}
		if begin.Topics == nil {
			if t.view, err = d.moment(); err != nil {
				return err
			}
			defer func() { d.endSession(ctx, t.view, err) }()
		}
		if err := t.start(ctx, begin); err != nil {
			return err
		}
		if err := fn(t); err != nil {
			return err
		}
		t.Committed()
		return nil
	})
}

// moment returns a session whose transaction begins with its first read, and sees that moment.
func (d *Driver) moment() (*mongo.Session, error) {
	session, err := d.client.StartSession()
	if err == nil {
		err = session.StartTransaction(ownTransaction())
	}
	return session, err
}

// Update runs fn in a transaction, which begins with its first write.
func (d *Driver) Update(ctx context.Context, begin driver.Begin, fn func(driver.Tx) error) error {
	known := newLearned()
	try := func() error { return d.run(ctx, begin, known, fn) }
	err := d.repeat(ctx, try)
	for known.losses < leastLosses && conflicts(err) && ctx.Err() == nil {
		err = d.repeat(ctx, try)
	}
	for line := range known.waits {
		d.leave(ctx, line)
	}
	return err
}

// learned is what a transaction that begins again knows from the tries before.
type learned struct {
	// careful says that rows were lost: the next try reads which.
	careful bool
	// busy are the lines that other processes had locked, and that the transaction must not wait for. In the queues of waits it stands
	// before it begins again.
	busy, waits map[driver.Line]bool
	// locks are those of this process for which the tries before have waited.
	locks map[driver.Line]bool
	// losses counts the conflicts, and rows and notes are what the last try has written before it. entries are those that it has locked.
	losses      int
	rows, notes bson.A
	entries     []entryID
	// unanswered are the rows whose inserts got no answer.
	unanswered []driver.NewRow
	// oneByOne says that several lines were locked at once, and some of them by others.
	oneByOne bool
}

func newLearned() *learned {
	return &learned{busy: map[driver.Line]bool{}, waits: map[driver.Line]bool{}, locks: map[driver.Line]bool{}}
}

func (d *Driver) run(ctx context.Context, begin driver.Begin, known *learned, fn func(driver.Tx) error) (err error) {
	t := &tx{d: d, learned: known, inserts: begin.Inserts}
	defer func() { t.end(ctx, err) }()
	if err = t.stand(ctx); err != nil {
		return err
	}
	if err = t.takeTurn(ctx); err != nil {
		return err
	}
	if begin.Ask == nil {
		if err = t.hold(ctx); err != nil {
			return err
		}
	}
	if err = t.start(ctx, begin); err != nil {
		return err
	}
	if err = fn(t); err != nil {
		return err
	}
	if err = ctx.Err(); err != nil {
		return err
	}
	if t.session != nil {
		if err = commit(ctx, t.session); err != nil {
			return err
		}
	}
	for line := range t.locked {
		delete(known.waits, line)
	}
	t.Committed()
	return nil
}

// repeat runs fn until it succeeds, or fails for a reason that lasts.
func (d *Driver) repeat(ctx context.Context, fn func() error) error {
	return again(ctx, passes, fn)
}

// again runs fn for up to tryWithin, until it succeeds or fails with an error that is not worth another attempt.
func again(ctx context.Context, worthIt func(error) bool, fn func() error) error {
	return storekit.RepeatFor(ctx, tryWithin, storekit.NewWaits(firstPause, lastPause), worthIt, fn)
}

// Alone runs fn outside of a transaction, and repeats it for reasons that pass: where once is set, only if it had no effect.
func (d *Driver) Alone(ctx context.Context, once bool, fn func(ctx context.Context) error) error {
	worthIt := passes
	if once {
		worthIt = conflicts
	}
	return again(ctx, worthIt, func() error { return fn(alone(ctx)) })
}

// InSession runs fn in the caller's transaction, in which nothing else runs at the same time.
func (d *Driver) InSession(ctx context.Context, session *mongo.Session, fn func(ctx context.Context) error) error {
	return d.within(ctx, session, func(*tx) error { return fn(mongo.NewSessionContext(ctx, session)) })
}

// Read returns the content of rows, outside of a transaction.
func (d *Driver) Read(ctx context.Context, rows []driver.Row, want driver.Want) (found []driver.Content, err error) {
	err = d.repeat(ctx, func() error {
		found, err = (&tx{d: d}).Load(ctx, rows, want)
		return err
	})
	return found, err
}

// lock is a lock within this process. It does not wait if pass is set.
func (d *Driver) lock(ctx context.Context, of any, pass bool) (unlock func(), err error) {
	found, _ := d.locks.LoadOrStore(of, make(chan struct{}, 1))
	token := found.(chan struct{})
	if pass {
		select {
		case token <- struct{}{}:
			return func() { <-token }, nil
		default:
			return nil, nil
		}
	}
	select {
	case token <- struct{}{}:
		return func() { <-token }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// metaID is the id of the only document of meta.
const metaID = "outmill"

func idIs(id any) bson.D { return bson.D{{Key: "_id", Value: id}} }

func in(field string, values any) bson.E {
	return bson.E{Key: field, Value: bson.D{{Key: "$in", Value: values}}}
}

func ascending(fields ...string) bson.D {
	keys := make(bson.D, len(fields))
	for i, field := range fields {
		keys[i] = bson.E{Key: field, Value: 1}
	}
	return keys
}
