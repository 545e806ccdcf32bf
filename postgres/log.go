package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	"github.com/outmill/outmill"
)

// Lane is where a store writes records that are due at once.
type Lane string

const (
	// LaneRows is one table of records. A claim updates the row, and an ack deletes or updates
	// it.
	LaneRows Lane = "rows"
	// LaneLog is a log that is only inserted into. Claims read ranges of it. A record moves to
	// the table of records only if something other than an ack happens to it.
	LaneLog Lane = "log"
)

const (
	laneColumns = `lane, logged, (SELECT seqcache FROM pg_sequence WHERE seqrelid = {q:records_seq_seq}::regclass)`

	sqlLane = `SELECT ` + laneColumns + ` FROM {p:meta} WHERE only_row`

	// sequenceNow is the last place that was given. A query of the sequence itself reads it
	// without a lock. But while nextval writes its WAL, the sequence shows a value 32 places
	// ahead: see nextval_internal in PostgreSQL's sequence.c. A function that locks the
	// sequence returns NULL before the first place; then the value from the sequence itself is
	// used.
	sequenceNow = `(SELECT coalesce(pg_catalog.pg_sequence_last_value({q:records_seq_seq}::pg_catalog.regclass),
		last_value OPERATOR(pg_catalog.-) 1) AS place
		FROM {p:records_seq_seq} OFFSET 0)`

	sqlMayAskCluster = `SELECT has_function_privilege('pg_control_system()', 'EXECUTE')`

	// sqlUseLog also stops programs that do not know the log, and notes the server's identity:
	// see log_cluster.go.
	sqlUseLog = `UPDATE {p:meta} SET lane = 'log', logged = true, generation = ` + nextGeneration + `, compatible = greatest(compatible, 2),
	cluster = CASE WHEN cluster = '' THEN (SELECT system_identifier::text FROM pg_control_system()) ELSE cluster END WHERE only_row
	AND lane <> 'log'`
)

// sqlUseLogAnyway is sqlUseLog for a role that may not read the server's identity.
var sqlUseLogAnyway = strings.Replace(sqlUseLog, "(SELECT system_identifier::text FROM pg_control_system())", "''", 1)

// lanes are the schema's settings of its lanes.
type lanes struct {
	write  Lane
	logged bool
}

func (s *Store) readLanes(ctx context.Context) error {
	var found lanes
	var cache int64
	if err := s.safe().QueryRow(ctx, s.sql.text(sqlLane)).Scan(&found.write, &found.logged, &cache); err != nil {
		return err
	}
	return s.useLanes(found, cache)
}

// useLanes keeps the settings that were read, unless the log cannot work with the sequence's cache.
func (s *Store) useLanes(found lanes, cache int64) error {
	if found.logged {
		if len(s.config.FairTopics) > 0 {
			return fmt.Errorf("%w: postgres.Config.FairTopics is set, and the log of the schema %s is on: the log cannot serve turns, so use "+
				"another schema for these topics", outmill.ErrInvalidConfig, s.config.Schema)
		}
		if err := s.checkCache(cache); err != nil {
			return err
		}
	}
	s.setLanes(found)
	return nil
}

// setLanes keeps the settings that were read. A read in an old snapshot cannot turn the log
// off, because it is never turned off.
func (s *Store) setLanes(found lanes) {
	for {
		known := s.lanesNow.Load()
		next := found
		if known != nil && known.logged && !found.logged {
			next = *known
		}
		if s.lanesNow.CompareAndSwap(known, &next) {
			return
		}
	}
}

// checkCache refuses a sequence whose sessions cache places: a claim could read past a cached
// place before it is used.
func (s *Store) checkCache(cache int64) error {
	if cache == 1 {
		return nil
	}
	return fmt.Errorf("%w: the sequence of %srecords has CACHE %d, and the log needs 1: ALTER SEQUENCE … CACHE 1, and reconnect",
		outmill.ErrInvalidConfig, s.config.TablePrefix, cache)
}

// sequenceBehind returns the error for a sequence that was set back: the next append would get
// a place that was read already, or that another record has.
func (s *Store) sequenceBehind(at, read int64) error {
	name := s.sql.text(`{p:records_seq_seq}`)
	remedy := s.sql.text(`SELECT setval({q:records_seq_seq}, greatest((SELECT max(seq) FROM {p:records}), (SELECT max(pos) FROM {p:log}), `)
	return fmt.Errorf("%w: the sequence %s is at %d, and there are records up to %d: it was set back, or not copied with the tables: "+
		"%s%d)), and see docs/postgres.md for what was appended since",
		outmill.ErrInvalidConfig, name, at, read, remedy, read)
}

// useLog turns the log on in an existing schema, so that appends write to it.
func (s *Store) useLog(ctx context.Context) error {
	// If the log is on already, a role without the right to turn it on succeeds.
	if err := s.readLanes(ctx); err != nil || s.lane() == LaneLog {
		return err
	}
	return s.useLogIn(ctx, s.safe())
}

func (s *Store) useLogIn(ctx context.Context, db querier) error {
	var mayAsk bool
	if err := db.QueryRow(ctx, sqlMayAskCluster).Scan(&mayAsk); err != nil {
		return err
	}
	template := sqlUseLog
	if !mayAsk {
		template = sqlUseLogAnyway
	}
	_, err := db.Exec(ctx, s.sql.text(template))
	return err
}

// lane returns where appends write.
func (s *Store) lane() Lane {
	if found := s.lanesNow.Load(); found != nil {
		return found.write
	}
	return LaneRows
}

// readsLog reports whether the log may have records. That stays true if appends write to the
// records again.
func (s *Store) readsLog() bool {
	found := s.lanesNow.Load()
	return found != nil && found.logged
}

// hasLog is readsLog after the settings were read once.
func (s *Store) hasLog(ctx context.Context, operation string) (bool, error) {
	if err := s.ready(ctx); err != nil {
		return false, s.explain(ctx, operation, err)
	}
	return s.readsLog(), nil
}

// seesLog is hasLog with a fresh read. It is for calls without a claim or append, which would
// not notice that the log was turned on.
func (s *Store) seesLog(ctx context.Context, operation string) (bool, error) {
	before := s.lanesNow.Load()
	logged, err := s.hasLog(ctx, operation)
	if err != nil || logged || s.lanesNow.Load() != before {
		return logged, err
	}
	err = s.read(ctx, operation, s.readLanes)
	return s.readsLog(), err
}

// lineOf returns the number of a line: a group's part of a topic. The first 16 bits are the
// group's, so that a search for all lines of a group does not read those of others.
func lineOf(group, topic string) int64 {
	const ofGroup = 16
	groups := sha256.Sum256([]byte(group))
	hash := sha256.New()
	_, _ = hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(group))))
	_, _ = hash.Write([]byte(group))
	_, _ = hash.Write([]byte(topic))
	of := uint64(binary.BigEndian.Uint16(groups[:]))<<(64-ofGroup) | binary.BigEndian.Uint64(hash.Sum(nil))>>ofGroup
	return int64(of)
}

// keyHash is the hash of a key in a batch; 0 is no key. Two keys with the same hash wait for
// each other, which does no harm.
func keyHash(key string) int64 {
	if key == "" {
		return 0
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key))
	return int64(hash.Sum64()) | 1
}

// batchRef names a batch of the log.
type batchRef struct {
	line, n int64
	// token distinguishes the batch from another one that has its number after a crash.
	token int64
	owner outmill.OwnerToken
	group string
	topic string
	size  int
	steps bool
	keyed bool
	// until is the end of the lease by this process's clock, unless the lease is extended.
	until time.Time
}

// inBatch is the position of a record in a batch.
type inBatch struct {
	*batchRef
	ordinal int
}

// of reports whether the lease is that of the batch. A record is claimed from the log at most
// once.
func (b inBatch) of(l outmill.Lease) bool { return b.owner == l.Owner && l.Claim == 1 }

// refs remembers the batches of the records that this store has claimed from the log. Others
// are looked up in the database.
type refs struct {
	mu   sync.Mutex
	byID map[outmill.WorkItemID]inBatch
	// sweepAt is the number of entries at which those with an ended lease are dropped.
	sweepAt int
}

const minSweep = 10_000

func (r *refs) add(batch *batchRef, ids []outmill.WorkItemID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = map[outmill.WorkItemID]inBatch{}
	}
	for i, id := range ids {
		r.byID[id] = inBatch{batch, i}
	}
	if len(r.byID) < max(minSweep, r.sweepAt) {
		return
	}
	now := time.Now()
	for id, ref := range r.byID {
		if ref.until.Before(now) {
			delete(r.byID, id)
		}
	}
	r.sweepAt = 2 * len(r.byID)
}

// keep notes the extended lease of a batch.
func (r *refs) keep(batch *batchRef, lease time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	batch.until = time.Now().Add(lease)
}

// places returns the positions of the known leases. If forget is true, it also drops them,
// because they are about to be settled.
func (r *refs) places(leases []outmill.Lease, forget bool) map[outmill.WorkItemID]inBatch {
	r.mu.Lock()
	defer r.mu.Unlock()
	places := make(map[outmill.WorkItemID]inBatch, len(leases))
	for _, l := range leases {
		ref, known := r.byID[l.ID]
		if !known {
			continue
		}
		places[l.ID] = ref
		if forget && ref.of(l) {
			delete(r.byID, l.ID)
		}
	}
	return places
}

// take drops the positions of leases that are about to be settled, and returns them by batch.
// others are leases that are not known, or were passed twice.
func (r *refs) take(leases []outmill.Lease) (batches map[*batchRef][]int, others []outmill.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	batches = map[*batchRef][]int{}
	for _, l := range leases {
		ref, known := r.byID[l.ID]
		if !known || !ref.of(l) {
			others = append(others, l)
			continue
		}
		delete(r.byID, l.ID)
		if batches[ref.batchRef] == nil {
			batches[ref.batchRef] = make([]int, 0, min(len(leases), ref.size))
		}
		batches[ref.batchRef] = append(batches[ref.batchRef], ref.ordinal)
	}
	return batches, others
}
