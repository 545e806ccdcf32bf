package driver

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

var _ driver.Noter = (*Driver)(nil)

// Note notes a message in the caller's transaction by two commands: one reads the time, the lease and the note, all as of the snapshot of
// the transaction, which begins with its first statement; the other writes the note. It does not wait: the server reports a conflict
// with another transaction at once, and aborts this one. See driver.Noter.
func (d *Driver) Note(ctx context.Context, caller any, e driver.Entry, keep, _ time.Duration, lease outmill.Lease) (
	added bool, err error) {
	err = d.within(ctx, caller, func(t *tx) error {
		first := func(from *mongo.Collection, filter bson.D) part {
			return part{from, mongo.Pipeline{{{Key: "$match", Value: filter}}, {{Key: "$project", Value: idIs(1)}}}}
		}
		t.inserts = true
		found, err := t.read(ctx, true, first(d.entries, idIs(idOf(e))), first(d.records, bson.D{
			{Key: "_id", Value: uuid(lease.ID)}, stageIs(driver.Leased), {Key: "owner", Value: lease.Owner.String()},
			{Key: "claims", Value: lease.Claim},
		}))
		switch {
		case err != nil:
			return err
		case !lease.ID.IsZero() && len(found[1]) == 0:
			return outmill.ErrLeaseLost
		case len(found[0]) > 0:
			return nil
		}
		e.Made, e.At, added = t.state.Now, t.state.Now.After(keep), true
		return t.insertEntry(ctx, e)
	})
	return added && err == nil, err
}

// insertEntry writes an entry that does not exist as of the transaction.
func (t *tx) insertEntry(ctx context.Context, e driver.Entry) error {
	own, err := t.begin(ctx)
	if err == nil {
		t.wrote = true
		_, err = t.d.entries.InsertOne(own, documentOf(e))
	}
	if mongo.IsDuplicateKeyError(err) {
		err = errConflict
	}
	return t.busyAs(err)
}
