package driver

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/storekit"
)

// MongoDB aborts the later one of two transactions that write a document, and the one that comes again competes with all that are new. So
// the documents that are locks have queues: a transaction that has lost has its process stand there, and until that has had its turn, new
// transactions of other processes leave the lock alone. Within a process, transactions wait for each other by Driver.lock.

// placeFor is how long the place of a process lasts that does not come back.
const placeFor = 4 * time.Second

// waitAtOnce is how long one write waits for a transaction. The server looks again after 1 to 5 ms, but after 100 ms when the write has
// waited for two seconds: too seldom to get between two short transactions.
const waitAtOnce = 500 * time.Millisecond

// lockOfMeta stands for the document of meta among the lines.
var lockOfMeta = driver.Line{}

// turnOfEntries stands for the turns of transactions that have locked entries, such as joins that many settlements count in, and lost.
var turnOfEntries = driver.Line{Topic: "locked entries"}

// place is that of a process in a queue.
type place struct {
	By bson.ObjectID `bson:"by"`
}

// inQueue is an expression with the places in the queue that have not ended.
var inQueue = bson.D{{Key: "$filter", Value: bson.D{
	{Key: "input", Value: bson.D{{Key: "$ifNull", Value: bson.A{"$queue", bson.A{}}}}},
	{Key: "cond", Value: bson.D{{Key: "$gt", Value: bson.A{"$$this.until", "$$NOW"}}}},
}}}

func let(name string, value, in any) bson.D {
	return bson.D{{Key: "$let", Value: bson.D{{Key: "vars", Value: bson.D{{Key: name, Value: value}}}, {Key: "in", Value: in}}}}
}

func equal(a, b any) bson.D { return bson.D{{Key: "$eq", Value: bson.A{a, b}}} }

// taking is an update that makes changes to a lock, and ends the place of this process. If another process is first, it changes nothing.
func (d *Driver) taking(changes bson.D) mongo.Pipeline {
	first := bson.D{{Key: "$ifNull", Value: bson.A{bson.D{{Key: "$arrayElemAt", Value: bson.A{"$$queue.by", 0}}}, d.id}}}
	others := bson.D{{Key: "$filter", Value: bson.D{
		{Key: "input", Value: "$$queue"}, {Key: "cond", Value: bson.D{{Key: "$ne", Value: bson.A{"$$this.by", d.id}}}},
	}}}
	taken := bson.D{{Key: "$mergeObjects", Value: bson.A{"$$ROOT", append(changes, bson.E{Key: "queue", Value: others})}}}
	return mongo.Pipeline{{{Key: "$replaceWith", Value: let("queue", inQueue, given(equal(first, d.id), taken, "$$ROOT"))}}}
}

// standing is an update that has this process stand in the queue of a lock. It changes the document, and so waits for the transaction
// that has the lock, if this process is first. Else it does so only to keep its place.
func (d *Driver) standing() mongo.Pipeline {
	until := func(d time.Duration) bson.D { return bson.D{{Key: "$add", Value: bson.A{"$$NOW", d.Milliseconds()}}} }
	mine := equal("$$this.by", d.id)
	keeps := bson.D{{Key: "$or", Value: bson.A{
		equal(bson.D{{Key: "$arrayElemAt", Value: bson.A{"$$queue.by", 0}}}, d.id),
		bson.D{{Key: "$lt", Value: bson.A{"$$this.until", until(placeFor / 2)}}},
	}}}
	kept := bson.D{{Key: "$map", Value: bson.D{{Key: "input", Value: "$$queue"}, {Key: "in", Value: given(
		bson.D{{Key: "$and", Value: bson.A{mine, keeps}}},
		bson.D{{Key: "by", Value: d.id}, {Key: "until", Value: until(placeFor)}}, "$$this")}}}}
	last := given(bson.D{{Key: "$in", Value: bson.A{d.id, "$$queue.by"}}}, bson.A{},
		bson.A{bson.D{{Key: "by", Value: d.id}, {Key: "until", Value: until(placeFor)}}})
	return mongo.Pipeline{{{Key: "$set", Value: bson.D{{Key: "queue", Value: let("queue", inQueue,
		bson.D{{Key: "$concatArrays", Value: bson.A{kept, last}}})}}}}}
}

// lockDocument returns the document of a lock.
func (d *Driver) lockDocument(line driver.Line) (in *mongo.Collection, id bson.D) {
	if line == lockOfMeta {
		return d.meta, idIs(metaID)
	}
	return d.lines, idIs(lineID(line))
}

// stand waits in the queue of a lock until this process is first and nobody has the lock. The transaction that follows in the session sees
// the moment after that.
func (d *Driver) stand(ctx context.Context, line driver.Line) error {
	within, cancel := context.WithTimeout(ctx, tryWithin)
	defer cancel()
	for waits := storekit.NewWaits(firstPause, lastPause); ; {
		began := time.Now()
		first, err := d.standOnce(within, line)
		switch {
		case first && time.Since(began) < placeFor/2:
			return nil
		case err != nil:
			return err
		}
		if waits.Wait(within) != nil {
			return cmp.Or(ctx.Err(), errConflict)
		}
	}
}

// standOnce takes or keeps a place, and reports whether it is the first one.
func (d *Driver) standOnce(ctx context.Context, line driver.Line) (first bool, err error) {
	// The client sets a limit of its own where the context has one. A request that was cut off could take the place after it was given up.
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(abortWithin, cancel) })()
	in, id := d.lockDocument(line)
	var reply struct {
		Value struct{ Queue []place }
	}
	err = d.db.RunCommand(own, bson.D{
		{Key: "findAndModify", Value: in.Name()}, {Key: "query", Value: id}, {Key: "update", Value: d.standing()},
		{Key: "new", Value: true}, {Key: "upsert", Value: line != lockOfMeta}, {Key: "fields", Value: ascending("queue.by")},
		{Key: "maxTimeMS", Value: waitAtOnce.Milliseconds()},
	}).Decode(&reply)
	if mongo.IsDuplicateKeyError(err) || mongoerr.HasCode(err, mongoerr.CodeMaxTimeExpired) {
		return false, nil
	}
	return err == nil && len(reply.Value.Queue) > 0 && reply.Value.Queue[0].By == d.id, err
}

// leave gives the place of this process up.
func (d *Driver) leave(ctx context.Context, line driver.Line) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortWithin)
	defer cancel()
	in, id := d.lockDocument(line)
	_, _ = in.UpdateOne(alone(own), id, bson.D{{Key: "$pull", Value: bson.D{{Key: "queue", Value: bson.D{{Key: "by", Value: d.id}}}}}})
}

// holdFrom is how often a transaction loses before it writes first what it will change.
const holdFrom = 2

// lose remembers what a transaction has written that has lost against another one.
func (t *tx) lose(err error) {
	if t.learned == nil || !conflicts(err) {
		return
	}
	t.losses++
	if len(t.lockedEntries) > 0 && !t.callers {
		t.entries, t.locks[turnOfEntries] = t.lockedEntries, true
	}
	if len(t.applied) == 0 {
		return
	}
	t.rows, t.notes = nil, nil
	for _, c := range t.applied {
		for i := range c.Rows {
			t.rows = append(t.rows, uuid(c.Rows[i].Was.ID))
		}
		for i := range c.Delete {
			t.rows = append(t.rows, uuid(c.Delete[i].ID))
		}
		for _, n := range slices.Concat(c.Open, c.Drop, c.Notes) {
			t.notes = append(t.notes, noteID(n.Line, n.Name))
		}
	}
}

// takeTurn has transactions that have lost entries come one after the other, so that each competes with new ones only.
func (t *tx) takeTurn(ctx context.Context) error {
	if len(t.entries) == 0 {
		return nil
	}
	_, _, err := t.lockLine(ctx, driver.Ask{Line: turnOfEntries})
	return err
}

// hold writes the rows, notes and entries that the tries before have lost, with the transaction's first writes. The longer a transaction
// reads before it writes, the likelier is it that shorter ones have written in between; behind this they lose instead, or wait.
func (t *tx) hold(ctx context.Context) error {
	if t.held || t.losses < holdFrom || len(t.rows)+len(t.notes)+len(t.entries) == 0 {
		return nil
	}
	own, err := t.begin(ctx)
	if err != nil {
		return err
	}
	// Leases from outside would wait for this transaction.
	t.held, t.wroteRows = true, true
	locks := bson.D{{Key: "$inc", Value: bson.D{{Key: "locks", Value: int64(1)}}}}
	if len(t.rows) > 0 {
		if _, err := t.d.records.UpdateMany(own, bson.D{in("_id", t.rows)}, locks); err != nil {
			return err
		}
	}
	if len(t.notes) > 0 {
		if _, err := t.d.notes.UpdateMany(own, bson.D{in("_id", t.notes)}, locks); err != nil {
			return err
		}
	}
	if len(t.entries) > 0 {
		return t.d.lockEntries(own, t.entries)
	}
	return nil
}
