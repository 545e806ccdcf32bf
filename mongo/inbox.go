package mongo

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// noteID is the id of a document of the inbox.
type noteID struct {
	Consumer string `bson:"c"`
	Key      string `bson:"k"`
}

// PutNote notes that a consumer handles a message. It never waits, because the server reports a
// conflict with the note of another transaction at once. PutNote then returns ErrNoteBusy, even
// if the other transaction has committed since this one began. It looks for the lease in a read of
// its own, as of the snapshot of the transaction, which begins with its first statement. See
// roles.Inbox.
func (s *Store) PutNote(ctx context.Context, note roles.Note, _ time.Duration) (duplicate bool, err error) {
	const operation = "put a note"
	session, err := s.sessionOf(ctx)
	if err == nil {
		err = storekit.CheckNote(note)
	}
	if err != nil {
		return false, s.explain(ctx, operation, err)
	}
	put := func(ctx context.Context) (err error) {
		duplicate, err = s.putNote(ctx, note)
		return err
	}
	if session != nil {
		err = s.within(ctx, operation, session, func(ctx context.Context) error {
			if err := s.requireLease(ctx, note); err != nil {
				return err
			}
			return busy(put(ctx))
		})
	} else {
		err = s.doOnce(ctx, operation, put)
	}
	return duplicate && err == nil, err
}

// requireLease returns outmill.ErrLeaseLost if the lease of the note is not valid.
func (s *Store) requireLease(ctx context.Context, note roles.Note) error {
	if !note.Own() {
		return nil
	}
	g := leaseGroup{owner: note.Lease.Owner, claim: note.Lease.Claim}
	found, err := findAll[struct{}](ctx, s.records, g.standing(bson.A{uuid(note.Lease.ID)}), first(1, nil, "_id"))
	if err == nil && len(found) == 0 {
		err = outmill.ErrLeaseLost
	}
	return err
}

// putNote does not change a note that exists. If another session inserts the same note first, the
// server reports a duplicate key when there is no transaction. The server deletes a note at its
// delete_at, so a note of a record has none: DeleteNotes looks at it at its look_at.
func (s *Store) putNote(ctx context.Context, note roles.Note) (duplicate bool, err error) {
	until := inTime(note.Retention)
	set := bson.D{{Key: "delete_at", Value: given(isNote, "$delete_at", until)}}
	if note.Own() {
		set = bson.D{
			{Key: "look_at", Value: given(isNote, "$look_at", until)},
			{Key: "record", Value: given(isNote, "$record", uuid(note.Lease.ID))},
		}
	}
	result, err := s.inbox.UpdateOne(ctx, where("_id", noteID{note.Consumer, note.Key}), driver.Pipeline{{{Key: "$set", Value: set}}},
		options.UpdateOne().SetUpsert(true))
	if driver.IsDuplicateKeyError(err) && driver.SessionFromContext(ctx) == nil {
		return true, nil
	}
	return err == nil && result.UpsertedCount == 0, err
}

// isNote is the condition that the document existed before the update.
var isNote = bson.D{{Key: "$or", Value: bson.A{
	bson.D{{Key: "$gt", Value: bson.A{"$delete_at", nil}}}, bson.D{{Key: "$gt", Value: bson.A{"$look_at", nil}}},
}}}

// busy reports the conflict with another transaction. It drops the labels of the driver's error,
// because they would make Transact try again at once.
func busy(err error) error {
	if mongoerr.HasCode(err, mongoerr.CodeWriteConflict) || driver.IsDuplicateKeyError(err) {
		return fmt.Errorf("%w: %v", roles.ErrNoteBusy, err) //nolint:errorlint // see above
	}
	return err
}

// HasNote reports whether a message was noted for the consumer. See roles.Inbox.
func (s *Store) HasNote(ctx context.Context, consumer, key string) (found bool, err error) {
	const operation = "look for a note"
	session, err := s.sessionOf(ctx)
	if err != nil {
		return false, s.explain(ctx, operation, err)
	}
	look := func(ctx context.Context) error {
		notes, err := findAll[struct{}](ctx, s.inbox, where("_id", noteID{consumer, key}), first(1, nil, "_id"))
		found = len(notes) > 0
		return err
	}
	if session != nil {
		err = s.within(ctx, operation, session, look)
	} else {
		err = s.do(ctx, operation, look)
	}
	return found, err
}

// DeleteNotes deletes notes whose retention has passed and that the server's TTL index has not
// deleted yet, and those whose record is gone or processed, which the index leaves alone. See
// roles.Inbox.
func (s *Store) DeleteNotes(ctx context.Context, limit int) (int, error) {
	const operation = "delete notes"
	foreign, err := s.deleteOver(ctx, operation, limit, s.inbox, "delete_at")
	if err != nil || foreign >= limit {
		return foreign, err
	}
	own, err := storekit.DeleteNotes(limit-foreign, func(limit int) (deleted, kept int, err error) {
		err = s.do(ctx, operation, func(ctx context.Context) (err error) {
			deleted, kept, err = s.deleteOutlived(ctx, limit)
			return err
		})
		return deleted, kept, err
	})
	return foreign + own, err
}

// deleteOutlived takes up to limit notes of records whose time has come, deletes those whose record
// is gone or processed, because neither comes back, and puts off the others.
func (s *Store) deleteOutlived(ctx context.Context, limit int) (deleted, kept int, err error) {
	now, err := s.now(ctx)
	if err != nil {
		return 0, 0, err
	}
	old := bson.E{Key: "look_at", Value: bson.D{{Key: "$lte", Value: now}}}
	notes, err := findAll[struct {
		ID     noteID `bson:"_id"`
		Record uuid   `bson:"record"`
	}](ctx, s.inbox, bson.D{old}, first(limit, ascending("look_at"), "record"))
	if err != nil || len(notes) == 0 {
		return 0, 0, err
	}
	records := make(bson.A, len(notes))
	for i, n := range notes {
		records[i] = n.Record
	}
	alive, err := findAll[stepRecord](ctx, s.records,
		append(in("_id", records), bson.E{Key: "stage", Value: bson.D{{Key: "$ne", Value: storekit.StageProcessed}}}), first(limit, nil, "_id"))
	if err != nil {
		return 0, 0, err
	}
	comes := make(map[uuid]bool, len(alive))
	for _, r := range alive {
		comes[r.ID] = true
	}
	var gone, keep bson.A
	for _, n := range notes {
		if comes[n.Record] {
			keep = append(keep, n.ID)
		} else {
			gone = append(gone, n.ID)
		}
	}
	if len(keep) > 0 {
		_, err := s.inbox.UpdateMany(ctx, append(in("_id", keep), old),
			driver.Pipeline{{{Key: "$set", Value: bson.D{{Key: "look_at", Value: inTime(storekit.NoteKeptFor)}}}}})
		if err != nil {
			return 0, 0, err
		}
	}
	if len(gone) > 0 {
		result, err := s.inbox.DeleteMany(ctx, append(in("_id", gone), old))
		if err != nil {
			return 0, len(keep), err
		}
		deleted = int(result.DeletedCount)
	}
	return deleted, len(keep), nil
}
