package mongo

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/outmill/outmill/internal/sqltx"
)

const (
	firstReconnect = 100 * time.Millisecond
	lastReconnect  = 30 * time.Second
	// listenFor is how long a stream is listened to before it is opened again. It
	// stands in for the timeout of the client's operations, which would end it.
	listenFor = 24 * time.Hour
)

// Wake calls woken when records of a topic may have become claimable: see
// outmill.Waker. It hears at once what the Store does in transactions of its own.
// What callers' transactions and other processes append comes by a change stream,
// which the first Wake opens and Close ends; polling finds what other processes
// give back. A standalone server has no change stream, and a stream that breaks
// off cannot go on once the server's oplog has dropped its place: readers poll in
// both cases.
func (s *Store) Wake(ctx context.Context, woken func(topic string)) {
	s.bell.Listen(ctx, woken)
	if s.bell.Heard() {
		s.changes.listen()
	}
}

// changes follows the change stream.
type changes struct {
	s    *Store
	ctx  context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu        sync.Mutex
	listening bool
}

// errStreamEnded is of a stream whose collection was dropped or renamed.
var errStreamEnded = errors.New("the server has ended the change stream: the collection was dropped or renamed")

func newChanges(s *Store) *changes {
	c := &changes{s: s}
	c.ctx, c.end = context.WithCancel(context.Background())
	return c
}

// listen begins to listen, once.
func (c *changes) listen() {
	if c.s.config.WithoutChangeStream || c.s.config.WithoutTransactions {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listening || c.ctx.Err() != nil {
		return
	}
	c.listening = true
	c.work.Go(c.keepListening)
}

func (c *changes) keepListening() {
	pause := firstReconnect
	for c.ctx.Err() == nil {
		began := time.Now()
		err := c.hear()
		if c.ctx.Err() != nil {
			return
		}
		if err == nil {
			continue
		}
		c.s.logger.Error("No change stream; readers poll until it works again", err, nil)
		if time.Since(began) > lastReconnect {
			pause = firstReconnect
		}
		_ = sqltx.Pause(c.ctx, pause/2+rand.N(pause))
		pause = min(2*pause, lastReconnect)
	}
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
func (c *changes) hear() error {
	ctx, cancel := context.WithTimeout(c.ctx, listenFor)
	defer cancel()
	// There are streams of what a majority has only.
	records := c.s.records.Clone(options.Collection().SetReadConcern(readconcern.Majority()))
	stream, err := records.Watch(c.ctx, driver.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "operationType", Value: "insert"}, {Key: "fullDocument.last", Value: true}}}},
		{{Key: "$project", Value: bson.D{{Key: "_id", Value: 1}, {Key: "fullDocument.topic", Value: 1}, {Key: "fullDocument.wakes", Value: 1}}}},
	}, options.ChangeStream().SetMaxAwaitTime(time.Second))
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), abortWithin)
		defer cancel()
		_ = stream.Close(ctx)
	}()
	// Something may have been committed before the stream began.
	c.s.bell.Ring()
	for stream.Next(ctx) {
		c.s.bell.Ring(topicsOf(stream.Current)...)
	}
	if ctx.Err() != nil {
		return nil
	}
	return cmp.Or(stream.Err(), errStreamEnded)
}

func (c *changes) close() {
	c.mu.Lock()
	c.end()
	c.mu.Unlock()
	c.work.Wait()
}
