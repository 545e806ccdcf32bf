package mongo

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/storekit"
)

const (
	firstReconnect = 100 * time.Millisecond
	lastReconnect  = 30 * time.Second
	// listenFor is how long a stream runs before it is opened again. It replaces the timeout of
	// the client's operations, which would end the stream.
	listenFor = 24 * time.Hour
	// awaitEvents is how long the server waits for an event before it answers with none. The
	// stream of a cluster, which is never closed for busy readers, asks less often.
	awaitEvents, awaitInCluster = time.Second, 10 * time.Second
)

// Wake calls woken when records of a topic may have become claimable: see roles.Waker. The
// Store reports its own transactions at once. A change stream reports the appends of callers'
// transactions and of other processes, and the requeues of other processes. Polling finds records
// that other processes give back.
//
// All Stores of a client and a collection share one change stream, and so do those that Databases
// opens: theirs is of the whole cluster, if the user has the right for that. The first Wake opens
// it, and the last Close ends it. The stream of a collection is closed while all claims of these Stores return as many records as
// they ask for, because the server reads its whole oplog for each stream; it is opened again when
// a claim returns fewer. A standalone server has no change stream, and a broken stream cannot
// resume once the server's oplog no longer has its position. In both cases readers poll.
func (s *Store) Wake(ctx context.Context, woken func(topic string)) {
	s.notifier.Listen(ctx, woken)
	if s.notifier.HasListeners() && !s.config.WithoutChangeStream && !s.config.WithoutTransactions {
		streams.join(s)
	}
}

// HearsOthers is false, because a change stream does not report records that other processes give back.
// See roles.Waker.
func (*Store) HearsOthers() bool { return false }

// FailingCalls reports the change stream while it cannot be opened, also where the server does not allow it.
// See storekit.FailingCaller.
func (s *Store) FailingCalls() []outmill.FailingCall {
	c := s.changes.Load()
	if c == nil || c.ctx.Err() != nil {
		return nil
	}
	return c.calls.FailingCalls()
}

var _ storekit.FailingCaller = (*Store)(nil)

// streams are the change streams of this process.
var streams registry

// changes follows a change stream.
type changes struct {
	s  *Store // the first of the users
	of streamOf
	// divided: the server refuses this stream of a cluster. The registry's lock guards it.
	divided bool
	ctx     context.Context
	end     context.CancelFunc
	work    sync.WaitGroup
	// calls knows whether the stream fails.
	calls storekit.CallLog

	mu    sync.Mutex
	users map[*Store]bool
	// stands means that the stream is open. pause ends it. idle is closed while it is wanted.
	stands bool
	pause  context.CancelFunc
	idle   chan struct{}
	// deafAfter is how long the server may give no answer, not even an empty one.
	deafAfter time.Duration
	// claims has the last claim of each reader. busySince is the time since which all of them
	// were full.
	claims    map[claimer]claimOutcome
	busySince time.Time
}

// claimer identifies a reader.
type claimer struct {
	store         *Store
	group, topics string
}

// claimOutcome says whether a claim returned as many records as it asked for, and when.
type claimOutcome struct {
	full bool
	at   time.Time
}

const (
	// busyFor is how long all claims must be full before the stream is closed.
	busyFor = time.Second
	// forgetClaimer is how long a reader counts after its last claim.
	forgetClaimer = time.Minute
	maxClaimers   = 1000
)

// errStreamEnded says that the collection of the stream was dropped or renamed.
var errStreamEnded = errors.New("the server has ended the change stream: the collection was dropped or renamed")

func newChanges(s *Store) *changes {
	c := &changes{
		s: s, of: s.streamOf(), users: map[*Store]bool{}, claims: map[claimer]claimOutcome{}, idle: make(chan struct{}), pause: func() {},
		deafAfter: deafAfter,
	}
	close(c.idle)
	c.ctx, c.end = context.WithCancel(context.Background())
	return c
}

// notify ends the rest of the stream's stores in the database, and wakes their listeners; "" is
// any.
func (c *changes) notify(database string, topics ...string) {
	c.mu.Lock()
	users := slices.Collect(maps.Keys(c.users))
	c.mu.Unlock()
	for _, s := range users {
		if database == "" || s.db.Name() == database {
			s.rest.end()
			s.notifier.Notify(topics...)
		}
	}
}

func (c *changes) ofCluster() bool { return c.of.database == "" }

// claimed notes the result of a claim. The stream of a cluster stays open, because its other
// databases may have no claims.
func (c *changes) claimed(s *Store, req outmill.ClaimRequest, full bool) {
	if c.ofCluster() {
		return
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.claims) >= maxClaimers {
		clear(c.claims)
	}
	c.claims[claimer{s, req.Group, strings.Join(req.Topics.Include, "\x00")}] = claimOutcome{full, now}
	wanted := c.wanted()
	for who, last := range c.claims {
		if now.Sub(last.at) > forgetClaimer {
			delete(c.claims, who)
		} else if !last.full {
			c.busySince = time.Time{}
			if !wanted {
				close(c.idle)
			}
			return
		}
	}
	if c.busySince.IsZero() {
		c.busySince = now
	}
	if wanted && now.Sub(c.busySince) >= s.busyFor {
		c.idle = make(chan struct{})
		c.pause()
	}
}

// wanted reports whether the stream should be open.
func (c *changes) wanted() bool {
	select {
	case <-c.idle:
		return true
	default:
		return false
	}
}

// session waits until the stream is wanted, and returns the context of the stream.
func (c *changes) session() (context.Context, context.CancelFunc) {
	for {
		c.mu.Lock()
		if c.wanted() || c.ctx.Err() != nil {
			ctx, cancel := context.WithTimeout(c.ctx, listenFor)
			c.pause = cancel
			c.mu.Unlock()
			return ctx, cancel
		}
		idle := c.idle
		c.mu.Unlock()
		c.calls.Forget()
		select {
		case <-idle:
		case <-c.ctx.Done():
		}
	}
}

// begin notes that the stream is open. What was known before the stream began has no value.
func (c *changes) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.users {
		s.rest.end()
	}
	c.stands = true
	c.calls.Note(c.ctx, storekit.CallListen, "", time.Time{}, nil)
}

func (c *changes) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stands = false
}

// isOpen reports whether the stream is open. Then the server has answered within deafAfter.
func (c *changes) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stands
}

func (c *changes) keepListening() {
	waits, told := storekit.NewWaits(firstReconnect, lastReconnect), false
	for c.ctx.Err() == nil {
		began := time.Now()
		ctx, cancel := c.session()
		err := c.hear(ctx)
		cancel()
		if c.ctx.Err() != nil {
			return
		}
		if err == nil {
			continue
		}
		if c.ofCluster() && (mongoerr.HasCode(err, mongoerr.CodeUnauthorized) || mongoerr.HasCode(err, mongoerr.CodeInvalidOptions)) {
			c.s.logger.Error("No change stream of the whole cluster; each database gets one of its own", err, nil)
			streams.divide(c)
			return
		}
		c.calls.Note(c.ctx, storekit.CallListen, "", time.Time{}, err)
		if mongoerr.HasCode(err, mongoerr.CodeUnauthorized) || mongoerr.HasCode(err, mongoerr.CodeNoChangeStreams) {
			c.s.logger.Error("The server does not allow a change stream, so readers poll; Config.WithoutChangeStream avoids the attempt", err,
				nil)
			return
		}
		if time.Since(began) > lastReconnect {
			told = false
			waits.Reset()
		}
		c.report(err, told)
		told = true
		_ = waits.Wait(c.ctx)
	}
}

// report logs once that the stream cannot be opened.
func (c *changes) report(err error, told bool) {
	const text = "No change stream; readers poll until it works again"
	if told {
		c.s.logger.Debug(text, watermill.LogFields{"err": err.Error()})
		return
	}
	c.s.logger.Error(text, err, nil)
}

// event is what the stream reports.
type event struct {
	Namespace struct {
		Database string `bson:"db"`
	} `bson:"ns"`
	Document struct {
		Topic string   `bson:"topic"`
		Wakes []string `bson:"wakes"`
	} `bson:"fullDocument"`
}

// topicsOf returns the database of an event, and the topics if it is an append; no topics stand for
// any topic.
func topicsOf(raw bson.Raw) (database string, topics []string) {
	var e event
	if err := bson.Unmarshal(raw, &e); err != nil || e.Document.Topic == "" {
		return e.Namespace.Database, nil
	}
	if len(e.Document.Wakes) > 0 {
		return e.Namespace.Database, e.Document.Wakes
	}
	return e.Namespace.Database, []string{e.Document.Topic}
}

// reported selects what makes records claimable that were not there, or were settled: appends and
// requeues. A drop or a restore may be the start of anything. Servers from 6.0 on compare all of it
// with the oplog, and make no event of other updates.
func reported() bson.E {
	return bson.E{Key: "$or", Value: bson.A{
		bson.D{{Key: "operationType", Value: "insert"}, {Key: "fullDocument.last", Value: true}},
		bson.D{{Key: "operationType", Value: "update"}, {Key: "updateDescription.updatedFields.open", Value: true}},
		in("operationType", bson.A{"drop", "rename"}),
	}}
}

// watch opens the stream.
func (c *changes) watch() (*driver.ChangeStream, error) {
	wanted := bson.D{reported()}
	if c.ofCluster() {
		wanted = append(wanted, bson.E{Key: "ns.coll", Value: c.of.collection})
	}
	pipeline := driver.Pipeline{
		{{Key: "$match", Value: wanted}},
		{{Key: "$project", Value: bson.D{{Key: "_id", Value: 1}, {Key: "ns.db", Value: 1}, {Key: "fullDocument.topic", Value: 1},
			{Key: "fullDocument.wakes", Value: 1}}}},
	}
	if c.ofCluster() {
		return c.s.client.Watch(c.ctx, pipeline, options.ChangeStream().SetMaxAwaitTime(awaitInCluster))
	}
	// Change streams report only documents that a majority has.
	records := c.s.records.Clone(options.Collection().SetReadConcern(readconcern.Majority()))
	return records.Watch(c.ctx, pipeline, options.ChangeStream().SetMaxAwaitTime(awaitEvents))
}

// hear reads the stream until it breaks for good; the driver resumes it if it can. The stream has
// only the last document of each append, and only its topics, because an event may not be larger
// than a document.
func (c *changes) hear(ctx context.Context) error {
	stream, err := c.watch()
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), abortWithin)
		defer cancel()
		_ = stream.Close(ctx)
	}()
	c.begin()
	defer c.stop()
	// Records may have been committed before the stream began.
	c.notify("")
	for c.next(ctx, stream) {
	}
	if ctx.Err() != nil {
		return nil
	}
	return cmp.Or(stream.Err(), errStreamEnded)
}

// next reports the next event, if one comes soon, and returns false when the stream has ended. It
// ends a stream to which the server gives no answer at all: the connection may be broken, which this
// end would otherwise not notice for a quarter of an hour.
func (c *changes) next(ctx context.Context, stream *driver.ChangeStream) bool {
	c.mu.Lock()
	within := c.deafAfter
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if stream.TryNext(ctx) {
		database, topics := topicsOf(stream.Current)
		c.notify(database, topics...)
		return true
	}
	return stream.Err() == nil && stream.ID() != 0
}
