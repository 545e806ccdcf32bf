package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Believe makes the store take server as the server's time at asked.
func (s *Store) Believe(server, asked time.Time) { s.clock.set(server, asked) }

// Believed returns the store's estimate of the server's time, and whether the store uses it.
func (s *Store) Believed() (time.Time, bool) { return s.clock.estimate() }

// StageInTurn is the stage of a ready record of a fair topic.
const StageInTurn = stageInTurn

// ClockGood is how long the store uses an answer of the server's clock.
const ClockGood = clockGood

// TurnTries is how often a claim tries to take the turn.
const TurnTries = turnTries

// SetTurn sets the initial length of a turn at a topic of a group.
func SetTurn(s *Store, lasts time.Duration) { s.turnFor = lasts }

// Turn is a turn at a topic.
type Turn struct{ t *turn }

// NewTurn returns a turn that is not taken yet.
func NewTurn(s *Store, group, topic string) Turn {
	of := line{reader(group), topic}
	return Turn{&turn{s: s, line: of, trail: s.trails.of(of), token: uuid(outmill.NewOwnerToken())}}
}

// Again is a further take of the same turn, of which the claim does not know.
func (t Turn) Again() Turn {
	return Turn{&turn{s: t.t.s, line: t.t.line, trail: t.t.trail, token: t.t.token}}
}

// Take takes the turn for so long.
func (t Turn) Take(ctx context.Context, lasts time.Duration) (bool, error) {
	return t.t.take(ctx, lasts)
}

// Confirm ends the turn if it is valid.
func (t Turn) Confirm(ctx context.Context) error { return t.t.confirm(ctx) }

// SetAsideAtOnce sets how many records a claim brings back after a pause.
func SetAsideAtOnce(s *Store, n int) { s.asideAtOnce = n }

// SetAtOnce limits the steps of work that one transaction does not finish.
func SetAtOnce(s *Store, records int) { s.atOnce = storekit.BatchSize(records) }

// SetBusyFor sets how long all claims must be full before the store closes the change stream.
func SetBusyFor(s *Store, d time.Duration) { s.busyFor = d }

// Listens reports whether the store's change stream is open.
func Listens(s *Store) bool { return s.changes.Load().isOpen() }

// LookAgain makes the store forget its trails. A trail uses this process's clock, which does not
// move when a test moves the time in the database.
func (s *Store) LookAgain() {
	s.trails.mu.Lock()
	defer s.trails.mu.Unlock()
	s.trails.known = nil
}

// CollectionNames are the names of the collections of a store without a prefix of its own.
func CollectionNames() []string {
	names := make([]string, len(collectionNames))
	for i, name := range collectionNames {
		names[i] = DefaultPrefix + name
	}
	return names
}

// StillDue selects the records that a claim may lease, by the server's clock.
func StillDue() bson.D { return bson.D{stillDue()} }

// SetDeafAfter sets how long the change stream may give no answer.
func SetDeafAfter(s *Store, d time.Duration) {
	c := s.changes.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deafAfter = d
}

// TriesOfContended returns how often the store tries work that other processes interrupt each time,
// and whose first try takes longer than all should.
func TriesOfContended(ctx context.Context) (tries int, err error) {
	err = againUntil(ctx, time.Now(), repeatable, func() error {
		tries++
		return errContended
	})
	return tries, err
}
