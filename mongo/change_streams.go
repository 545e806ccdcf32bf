package mongo

import (
	"maps"
	"slices"
	"sync"

	driver "go.mongodb.org/mongo-driver/v2/mongo"
)

// registry has one change stream for all Stores of a client and a collection.
type registry struct {
	mu    sync.Mutex
	known map[streamOf]*changes
}

// streamOf says which stores share a stream. No database stands for all of them.
type streamOf struct {
	client               *driver.Client
	database, collection string
}

func (s *Store) streamOf() streamOf {
	of := streamOf{s.client, s.db.Name(), s.records.Name()}
	if s.ofCluster.Load() {
		of.database = ""
	}
	return of
}

// join makes the stream notify the store's listeners. The first store starts the stream.
func (r *registry) join(s *Store) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.life.Closed() || s.changes.Load() != nil {
		return
	}
	c := r.known[s.streamOf()]
	if c != nil && c.divided {
		s.ofCluster.Store(false)
		c = r.known[s.streamOf()]
	}
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
		// A new listener may have missed appends.
		s.notifier.Notify()
	}
}

// leave ends the stream after its last store has left, and waits for its end.
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
	delete(r.known, c.of)
	r.forgetDivided(c.of)
	return c
}

// forgetDivided forgets that a client has no stream of its cluster, when it has no others either.
func (r *registry) forgetDivided(of streamOf) {
	for other, c := range r.known {
		if other.client == of.client && !c.divided {
			return
		}
	}
	maps.DeleteFunc(r.known, func(other streamOf, _ *changes) bool { return other.client == of.client })
}

// divide gives each database of a cluster's stream a stream of its own, also those that come later.
func (r *registry) divide(c *changes) {
	r.mu.Lock()
	c.mu.Lock()
	users := slices.Collect(maps.Keys(c.users))
	clear(c.users)
	c.mu.Unlock()
	c.divided = true
	for _, s := range users {
		s.ofCluster.Store(false)
		s.changes.Store(nil)
	}
	r.mu.Unlock()
	for _, s := range users {
		r.join(s)
	}
}
