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

// Wake returns a channel that receives when something may have become
// claimable: see outmill.Waker. Within this process it is told at once by what
// the Store does in transactions of its own. What is appended in callers'
// transactions and by other processes comes by a change stream, which the first
// Wake opens and Close ends; what other processes give back comes by polling. Where the server has none (a standalone server), or its log no
// longer reaches back to where the stream broke off, readers poll meanwhile.
func (s *Store) Wake(ctx context.Context) <-chan struct{} {
	told := s.bell.Listen(ctx)
	if s.bell.Heard() {
		s.changes.listen()
	}
	return told
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

// hear listens until the stream breaks for good: the driver resumes what can be
// resumed. It hears of the last document of each append, and of nothing but its
// id, since an event has the limits of a document.
func (c *changes) hear() error {
	ctx, cancel := context.WithTimeout(c.ctx, listenFor)
	defer cancel()
	// There are streams of what a majority has only.
	records := c.s.records.Clone(options.Collection().SetReadConcern(readconcern.Majority()))
	stream, err := records.Watch(c.ctx, driver.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "operationType", Value: "insert"}, {Key: "fullDocument.last", Value: true}}}},
		{{Key: "$project", Value: bson.D{{Key: "_id", Value: 1}}}},
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
		c.s.bell.Ring()
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
