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
	"github.com/outmill/outmill/storekit"
)

const (
	firstReconnect = 100 * time.Millisecond
	lastReconnect  = 30 * time.Second
	// listenFor is how long a stream is listened to before it is opened again. It
	// stands in for the timeout of the client's operations, which would end it.
	listenFor = 24 * time.Hour
)

// Wake calls woken when records of a topic may have become claimable: see
// storekit.Waker. It hears at once what the Store does in transactions of its own.
// What callers' transactions and other processes append comes by a change stream,
// one for all Stores of a client and their collection, which the first Wake opens and
// the last Close ends; polling finds what other processes give back. The stream is
// closed while all claims of these Stores bring as much as they ask for, since the
// server reads its whole log for each stream, and is opened again when one brings less. A standalone
// server has no change stream, and a stream that breaks off cannot go on once the
// server's oplog has dropped its place: readers poll in both cases.
func (s *Store) Wake(ctx context.Context, woken func(topic string)) {
	s.notifier.Listen(ctx, woken)
	if s.notifier.HasListeners() && !s.config.WithoutChangeStream && !s.config.WithoutTransactions {
		streams.join(s)
	}
}

// streams are the change streams of this process.
var streams registry

// registry has one change stream for the Stores of a client and a collection.
type registry struct {
	mu    sync.Mutex
	known map[streamOf]*changes
}

type streamOf struct {
	client               *driver.Client
	database, collection string
}

func (s *Store) streamOf() streamOf {
	return streamOf{s.client, s.db.Name(), s.records.Name()}
}

// join makes the stream, which begins with its first store, notify the store's listeners.
func (r *registry) join(s *Store) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.life.Closed() || s.changes.Load() != nil {
		return
	}
	c := r.known[s.streamOf()]
	if c == nil {
		c = newChanges(s)
		if r.known == nil {
			r.known = map[streamOf]*changes{}
		}
		r.known[s.streamOf()] = c
		c.work.Go(c.keepListening)
	}
	c.mu.Lock()
	c.users[s] = true
	stands := c.stands
	c.mu.Unlock()
	s.changes.Store(c)
	if stands {
		// A reader that listens from now on may have missed something.
		s.notifier.Notify()
	}
}

// leave ends the stream with its last store, and waits for that.
func (r *registry) leave(s *Store) {
	if c := r.remove(s); c != nil {
		c.end()
		c.work.Wait()
	}
}

// remove returns the store's stream if the store was its last user.
func (r *registry) remove(s *Store) *changes {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := s.changes.Load()
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.users, s)
	if len(c.users) > 0 {
		return nil
	}
	delete(r.known, s.streamOf())
	return c
}

// changes follows a change stream.
type changes struct {
	s    *Store // the first of the users
	ctx  context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu    sync.Mutex
	users map[*Store]bool
	// stands: the stream is there. pause ends it, and idle is closed while it is wanted.
	stands bool
	pause  context.CancelFunc
	idle   chan struct{}
	// claims are the last ones of each reader, and busySince is since when all of them
	// were full.
	claims    map[claimer]claimOutcome
	busySince time.Time
}

// claimer is a reader as a stream knows it.
type claimer struct {
	store         *Store
	group, topics string
}

// claimOutcome is whether a claim brought as much as it asked for, and when.
type claimOutcome struct {
	full bool
	at   time.Time
}

const (
	// busyFor is how long all claims are full before the stream is closed.
	busyFor = time.Second
	// forgetClaimer is how long a reader counts that claims no more.
	forgetClaimer = time.Minute
	maxClaimers   = 1000
)

// errStreamEnded is of a stream whose collection was dropped or renamed.
var errStreamEnded = errors.New("the server has ended the change stream: the collection was dropped or renamed")

func newChanges(s *Store) *changes {
	c := &changes{s: s, users: map[*Store]bool{}, claims: map[claimer]claimOutcome{}, idle: make(chan struct{}), pause: func() {}}
	close(c.idle)
	c.ctx, c.end = context.WithCancel(context.Background())
	return c
}

// notify tells the listeners of all users.
func (c *changes) notify(topics ...string) {
	c.mu.Lock()
	users := slices.Collect(maps.Keys(c.users))
	c.mu.Unlock()
	for _, s := range users {
		s.notifier.Notify(topics...)
	}
}

// claimed hears what a claim brought.
func (c *changes) claimed(s *Store, req outmill.ClaimRequest, full bool) {
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

// wanted tells whether the stream is wanted.
func (c *changes) wanted() bool {
	select {
	case <-c.idle:
		return true
	default:
		return false
	}
}

// session is how long to hear, once that is wanted.
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
		select {
		case <-idle:
		case <-c.ctx.Done():
		}
	}
}

func (c *changes) standing(stands bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stands = stands
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
		if hasCode(err, codeUnauthorized) || hasCode(err, codeNoChangeStreams) {
			c.s.logger.Error("No change stream, because the server does not allow one; readers poll. Config.WithoutChangeStream avoids the try", err,
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

// report tells once that a stream does not come about.
func (c *changes) report(err error, told bool) {
	const text = "No change stream; readers poll until it works again"
	if told {
		c.s.logger.Debug(text, watermill.LogFields{"err": err.Error()})
		return
	}
	c.s.logger.Error(text, err, nil)
}

// topicsOf are the topics of an append; none stands for any topic.
func topicsOf(event bson.Raw) []string {
	var inserted struct {
		Document struct {
			Topic string   `bson:"topic"`
			Wakes []string `bson:"wakes"`
		} `bson:"fullDocument"`
	}
	if err := bson.Unmarshal(event, &inserted); err != nil || inserted.Document.Topic == "" {
		return nil
	}
	if len(inserted.Document.Wakes) > 0 {
		return inserted.Document.Wakes
	}
	return []string{inserted.Document.Topic}
}

// hear listens until the stream breaks for good: the driver resumes what can be
// resumed. It hears of the last document of each append, and only the topics of
// it, because an event may not be larger than a document.
func (c *changes) hear(ctx context.Context) error {
	// There are streams of what a majority has only.
	records := c.s.records.Clone(options.Collection().SetReadConcern(readconcern.Majority()))
	stream, err := records.Watch(c.ctx, driver.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "operationType", Value: "insert"}, {Key: "fullDocument.last", Value: true}}}},
		{{Key: "$project", Value: bson.D{{Key: "_id", Value: 1}, {Key: "fullDocument.topic", Value: 1}, {Key: "fullDocument.wakes", Value: 1}}}},
	}, options.ChangeStream().SetMaxAwaitTime(time.Second))
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
	c.standing(true)
	defer c.standing(false)
	// Something may have been committed before the stream began.
	c.notify()
	for stream.Next(ctx) {
		c.notify(topicsOf(stream.Current)...)
	}
	if ctx.Err() != nil {
		return nil
	}
	return cmp.Or(stream.Err(), errStreamEnded)
}
