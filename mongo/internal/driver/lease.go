package driver

import (
	"cmp"
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/mongo/internal/mongoerr"
)

func onlyLeases(c *driver.Changes) bool {
	for i := range c.Rows {
		if now := &c.Rows[i].Now; now.Stage != driver.Leased || now.Tried != "" || now.Error != nil {
			return false
		}
	}
	return len(c.Delete)+len(c.Open)+len(c.Drop)+len(c.Notes) == 0
}

// lease writes leases outside of the transaction. Each update says what it expects, so two claims never get one row. A process that ends
// here leaves leases behind that nobody has got, as one does whose process ends later.
func (t *tx) lease(ctx context.Context, c *driver.Changes) (done driver.Applied, err error) {
	t.leased = append(t.leased, c.Rows...)
	var unedited bson.D
	if t.hasContents(c.Rows) {
		unedited = bson.D{{Key: "edits", Value: nil}}
	}
	records := t.d.records
	if len(t.locked) > 0 {
		// The commit comes later, so a majority that has it has the leases, too. If it fails, they are undone.
		records = t.d.atOnce
	}
	own, cancel := untilAnswered(ctx)
	defer cancel()
	matched, err := writeOutside(own, records, c.Rows, unedited...)
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return done, err
	}
	if matched < len(c.Rows) {
		if done.Lost, err = t.notLeased(ctx, c.Rows); err != nil {
			return done, err
		}
	}
	if len(t.locked) == 0 {
		t.d.crowds.note(c.Rows[0].Was.Line, len(c.Rows), len(c.Rows)-len(done.Lost))
	}
	if unedited == nil {
		return done, nil
	}
	done.Contents = make(map[outmill.WorkItemID]driver.Content, len(c.Rows))
	for i := range c.Rows {
		if id := c.Rows[i].Now.ID; !done.Lost[id] {
			done.Contents[id] = readContent(t.contents[id])
		}
	}
	return done, nil
}

// untilAnswered returns a context that outlasts ctx by abortWithin. The server goes on with a write whose client has gone, so leases that
// were cut off with ctx could be stored behind their undoing. The client tells the server a deadline, so a write that is still under way
// at the end of that one ends, too.
func untilAnswered(ctx context.Context) (context.Context, context.CancelFunc) {
	outlasts := context.WithoutCancel(ctx)
	own, cancel := context.WithCancel(outlasts)
	if end, is := ctx.Deadline(); is {
		cancel()
		own, cancel = context.WithDeadline(outlasts, end.Add(abortWithin))
	}
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(abortWithin, cancel) })
	return own, func() {
		stop()
		cancel()
	}
}

// hasContents reports whether the contents of all rows have come with them, and nobody had edited them.
func (t *tx) hasContents(rows []driver.Change) bool {
	for i := range rows {
		raw := t.contents[rows[i].Now.ID]
		if raw == nil {
			return false
		}
		if _, err := raw.LookupErr("edits"); err == nil {
			return false
		}
	}
	return true
}

// writeOutside writes rows outside of a transaction, and returns how many were as they were read. If the server steps down during the
// update, some are written: the update is repeated, and finds the others.
func writeOutside(ctx context.Context, records *mongo.Collection, rows []driver.Change, more ...bson.E) (matched int, err error) {
	var models []mongo.WriteModel
	for _, u := range updatesOf(rows, nil, 0) {
		models = append(models, u.model(more...))
	}
	err = again(ctx, mongoerr.Interrupted, func() error {
		result, err := records.BulkWrite(alone(ctx), models, options.BulkWrite().SetOrdered(false))
		if err == nil {
			matched = int(result.MatchedCount)
		}
		return err
	})
	return matched, err
}

// notLeased returns the rows that do not have the leases that were written.
func (t *tx) notLeased(ctx context.Context, rows []driver.Change) (map[outmill.WorkItemID]bool, error) {
	ids := make(bson.A, len(rows))
	for i := range rows {
		ids[i] = uuid(rows[i].Was.ID)
	}
	found, err := (&tx{d: t.d}).all(ctx, part{t.d.records, mongo.Pipeline{
		{{Key: "$match", Value: bson.D{in("_id", ids), stageIs(driver.Leased), {Key: "owner", Value: rows[0].Now.Owner}}}}, withoutContent,
	}})
	if err != nil {
		return nil, err
	}
	mine := map[outmill.WorkItemID]driver.Row{}
	for _, r := range readRows(found) {
		mine[r.ID] = r
	}
	lost := map[outmill.WorkItemID]bool{}
	for i := range rows {
		now := &rows[i].Now
		if r, is := mine[now.ID]; !is || r.Claims != now.Claims || r.Wake != now.Wake {
			lost[now.ID] = true
		}
	}
	return lost, nil
}

// unlease undoes the leases of a transaction that has failed: the lock of the line may have been lost before they were written, and
// nobody handles them. What it does not reach ends by time.
func (t *tx) unlease(ctx context.Context) {
	if len(t.leased) == 0 {
		return
	}
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortWithin)
	defer cancel()
	back := make([]driver.Change, len(t.leased))
	for i, c := range t.leased {
		back[i] = driver.Change{Was: c.Now, Now: c.Was}
	}
	_, _ = writeOutside(own, t.d.records, back)
}
