package driver

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// tx is a transaction: a View, an Update, or a Within in the caller's transaction.
type tx struct {
	d *Driver
	// session is nil until the transaction has begun. In a caller's transaction it is the caller's. made is one whose transaction has
	// not begun.
	session, made *mongo.Session
	// reads says that the transaction is a View, and view is the session of one that sees one moment.
	reads bool
	view  *mongo.Session
	// callers says that the transaction is the caller's.
	callers bool
	*learned
	state   driver.State
	begun   *firstRead
	inserts bool
	// locked are the lines that the transaction has locked, and within those that it has locked within this process.
	locked, within map[driver.Line]bool
	// wrote says that something was written in the caller's transaction.
	wrote bool
	// aborted says that the server has ended the caller's transaction.
	aborted bool
	// wroteRows says that the transaction has changed rows. leased are those that were leased outside of it.
	wroteRows bool
	leased    []driver.Change
	// applied are the changes that the transaction has written, or could not write.
	applied []driver.Changes
	// lockedEntries are those that the transaction has locked, or could not lock.
	lockedEntries []entryID
	// held says that the transaction has hold of what the tries before have written.
	held bool
	// contents are the small ones that came with the rows of a search, for leases.
	contents map[outmill.WorkItemID]bson.Raw
	unlocks  []func()
	storekit.AfterCommit
}

var _ driver.Tx = (*tx)(nil)

// State returns what the transaction knows about the database.
func (t *tx) State() driver.State { return t.state }

// in returns a context with the session in which reads run.
func (t *tx) in(ctx context.Context) context.Context {
	if t.session != nil {
		return mongo.NewSessionContext(ctx, t.session)
	}
	return mongo.NewSessionContext(ctx, t.view)
}

// begin begins the transaction, if it has not begun, and returns a context with its session.
func (t *tx) begin(ctx context.Context) (context.Context, error) {
	var err error
	switch {
	case t.session != nil:
	case t.made != nil:
		t.session, t.made = t.made, nil
		err = t.session.StartTransaction(ownTransaction())
	default:
		t.session, err = t.d.moment()
	}
	if err != nil {
		return nil, err
	}
	t.begun = nil
	return mongo.NewSessionContext(ctx, t.session), nil
}

// stand takes the locks of this process that the tries before have taken, and waits in the queues of those for which they have lost. It is
// before the transaction begins: what the queues' documents become while it waits is no conflict then. By the session the server knows that
// the transaction must see a later moment.
func (t *tx) stand(ctx context.Context) (err error) {
	byName := func(a, b driver.Line) int { return cmp.Or(cmp.Compare(a.Group, b.Group), driver.ByTopic(a, b)) }
	for _, line := range slices.SortedFunc(maps.Keys(t.locks), byName) {
		if _, err := t.lockWithin(ctx, line, false); err != nil {
			return err
		}
	}
	if len(t.waits) == 0 {
		return nil
	}
	if t.made, err = t.d.client.StartSession(); err != nil {
		return err
	}
	for _, line := range slices.SortedFunc(maps.Keys(t.waits), byName) {
		if err := t.d.stand(mongo.NewSessionContext(ctx, t.made), line); err != nil {
			return err
		}
	}
	return nil
}

// lockWithin locks the line within this process, once. A transaction that holds rows does not wait: who has the lock may wait for the rows.
func (t *tx) lockWithin(ctx context.Context, line driver.Line, pass bool) (free bool, err error) {
	if t.within[line] {
		return true, nil
	}
	unlock, err := t.d.lock(ctx, line, pass || t.held)
	if !pass && err == nil {
		t.locks[line] = true
		if unlock == nil {
			err = errConflict
		}
	}
	if err != nil || unlock == nil {
		return false, err
	}
	t.unlocks = append(t.unlocks, unlock)
	if t.within == nil {
		t.within = map[driver.Line]bool{}
	}
	t.within[line] = true
	return true, nil
}

// end ends the session of an Update.
func (t *tx) end(ctx context.Context, err error) {
	if t.made != nil {
		t.made.EndSession(ctx)
	}
	if t.session != nil {
		t.d.endSession(ctx, t.session, err)
	}
	if err != nil {
		t.unlease(ctx)
		t.lose(err)
	}
	t.unlock()
}

// unlock gives back the locks of this process.
func (t *tx) unlock() {
	for _, unlock := range t.unlocks {
		unlock()
	}
	t.unlocks, t.within = nil, nil
}

// firstRead is the read that came with the state. It answers one call, the first of the transaction.
type firstRead struct {
	driver.Begin
	// read says that it was made.
	read  bool
	rows  []driver.Row
	page  driver.Page
	lines []driver.Line
}

// first returns the first read if no other call has come before.
func (t *tx) first() firstRead {
	if t.begun == nil {
		return firstRead{}
	}
	r := *t.begun
	t.begun = nil
	return r
}

// start reads the state, and what the transaction reads first. A page that locks its line begins the transaction.
func (t *tx) start(ctx context.Context, begin driver.Begin) error {
	switch {
	case begin.Ask != nil && !t.reads:
		page, err := t.pageOf(ctx, *begin.Ask, true)
		t.begun = &firstRead{Begin: begin, page: page, read: true}
		return err
	case len(begin.Searches) > 0 && !slices.ContainsFunc(begin.Searches, func(s driver.Search) bool { return s.By != driver.ByDue }):
		rows, err := t.search(ctx, true, begin.Searches)
		t.begun = &firstRead{Begin: begin, rows: rows, read: true}
		return err
	case begin.Topics != nil && begin.Topics.Lines != nil:
		lines, err := t.dueLines(ctx, true, *begin.Topics)
		t.begun = &firstRead{Begin: begin, lines: lines, read: true}
		return err
	case begin.Find != nil:
		rows, err := t.find(ctx, true, begin.Find)
		t.begun = &firstRead{Begin: begin, rows: rows, read: true}
		return err
	}
	_, err := t.read(ctx, true)
	return err
}

// part is one of several reads in one command.
type part struct {
	from   *mongo.Collection
	stages mongo.Pipeline
}

// read carries out several reads in one command, also in a transaction, where MongoDB has no $unionWith. state reads the state along.
func (t *tx) read(ctx context.Context, state bool, parts ...part) ([][]bson.Raw, error) {
	return t.readFrom(ctx, t.d.meta, state, parts...)
}

func (t *tx) readFrom(ctx context.Context, meta *mongo.Collection, state bool, parts ...part) ([][]bson.Raw, error) {
	if len(parts) == 1 && !state {
		found, err := t.all(ctx, parts[0])
		return [][]bson.Raw{found}, err
	}
	stages := mongo.Pipeline{{{Key: "$match", Value: idIs(metaID)}}}
	if state {
		stages = append(stages, bson.D{{Key: "$set", Value: bson.D{{Key: "now", Value: nowOfDatabase}}}})
		if !t.inserts {
			parts = append(parts, t.d.stateParts()...)
		}
	}
	for i, p := range parts {
		lookup := bson.D{{Key: "from", Value: p.from.Name()}, {Key: "pipeline", Value: p.stages}, {Key: "as", Value: partName(i)}}
		if state {
			lookup = append(lookup, bson.E{Key: "let", Value: bson.D{{Key: strings.TrimPrefix(serverNow, "$$"), Value: "$now"}}})
		}
		stages = append(stages, bson.D{{Key: "$lookup", Value: lookup}})
	}
	found, err := t.all(ctx, part{meta, stages})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		_, err := t.d.checkMeta(nil)
		return nil, err
	}
	results := make([][]bson.Raw, len(parts))
	for i := range parts {
		values, _ := found[0].Lookup(partName(i)).Array().Values()
		for _, v := range values {
			results[i] = append(results[i], v.Document())
		}
	}
	if state {
		n := len(parts)
		if !t.inserts {
			n -= len(t.d.stateParts())
		}
		return results[:n], t.keepState(found[0], results[n:])
	}
	return results, nil
}

// readAlike is read for parts whose results need not be told apart.
func (t *tx) readAlike(ctx context.Context, state bool, parts ...part) ([]bson.Raw, error) {
	if state || t.session != nil || t.view != nil {
		results, err := t.read(ctx, state, parts...)
		return slices.Concat(results...), err
	}
	// The answer may be larger than a document.
	all := parts[0]
	for _, p := range parts[1:] {
		all.stages = append(all.stages, bson.D{{Key: "$unionWith", Value: bson.D{
			{Key: "coll", Value: p.from.Name()}, {Key: "pipeline", Value: p.stages},
		}}})
	}
	return t.all(ctx, all)
}

func partName(i int) string { return fmt.Sprint("p", i) }

// all returns the documents of one read.
func (t *tx) all(ctx context.Context, p part) ([]bson.Raw, error) {
	// One batch is as much as the server puts into one answer.
	cursor, err := p.from.Aggregate(t.in(ctx), p.stages, options.Aggregate().SetBatchSize(1<<20))
	if err != nil {
		return nil, err
	}
	var found []bson.Raw
	err = cursor.All(t.in(ctx), &found)
	return found, err
}

const (
	partNotes = iota
	partUnrouted
)

// stateParts are the reads of the state beside the document of meta.
func (d *Driver) stateParts() []part {
	one := func(from *mongo.Collection, filter bson.D) part {
		return part{from, mongo.Pipeline{{{Key: "$match", Value: filter}}, {{Key: "$limit", Value: 1}}, {{Key: "$project", Value: idIs(1)}}}}
	}
	return []part{
		partNotes:    one(d.notes, bson.D{}),
		partUnrouted: one(d.records, bson.D{{Key: "grp", Value: ""}, in("stage", unroutedStages)}),
	}
}

// nowOfDatabase is the server's time in microseconds. The document of meta moves it, for tests.
var nowOfDatabase = bson.D{{Key: "$add", Value: bson.A{
	bson.D{{Key: "$multiply", Value: bson.A{bson.D{{Key: "$toLong", Value: "$$NOW"}}, 1000}}},
	bson.D{{Key: "$ifNull", Value: bson.A{"$ahead", 0}}},
}}}

// meta is the document of meta, with the server's time.
type meta struct {
	Version    int    `bson:"version"`
	Compatible int    `bson:"compatible"`
	Routes     *int64 `bson:"routes"`
	Pauses     int64  `bson:"pauses"`
	Now        int64  `bson:"now"`
	// Locked is the token of the last transaction that has locked the document.
	Locked bson.ObjectID `bson:"locked"`
}

func (t *tx) keepState(raw bson.Raw, found [][]bson.Raw) error {
	if _, err := t.d.checkMeta(raw); err != nil {
		return err
	}
	var m meta
	if err := bson.Unmarshal(raw, &m); err != nil {
		return err
	}
	t.state = driver.State{
		Now: driver.Time(m.Now), Generations: driver.Generations{Routes: *m.Routes, Pauses: m.Pauses},
	}
	if len(found) == 0 {
		// An append needs no more.
		return nil
	}
	// Some of the notes may be those of pauses.
	t.state.Notes, t.state.Paused, t.state.Unrouted = len(found[partNotes]) > 0, len(found[partNotes]) > 0, len(found[partUnrouted]) > 0
	if t.state.Notes {
		t.d.noted.Store(time.Now().UnixNano())
	}
	t.d.asked.Store(time.Now().UnixNano())
	return nil
}
