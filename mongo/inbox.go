package mongo

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill/storekit"
)

// noteID is the id of a document of the inbox.
type noteID struct {
	Consumer string `bson:"c"`
	Key      string `bson:"k"`
}

// PutNote notes that a consumer handles a message. It never waits, because the server reports a
// conflict with the note of another transaction at once. PutNote then returns ErrNoteBusy, even
// if the other transaction has committed since this one began. See storekit.Inbox.
func (s *Store) PutNote(ctx context.Context, note storekit.Note, _ time.Duration) (duplicate bool, err error) {
	const operation = "put a note"
	session, err := s.sessionOf(ctx)
	if err == nil {
		err = note.Validate()
	}
	if err != nil {
		return false, s.explain(ctx, operation, err)
	}
	put := func(ctx context.Context) (err error) {
		duplicate, err = s.putNote(ctx, note)
		return err
	}
	if session != nil {
		err = s.within(ctx, operation, session, func(ctx context.Context) error { return busy(put(ctx)) })
	} else {
		err = s.doOnce(ctx, operation, put)
	}
	return duplicate && err == nil, err
}

// putNote does not change a note that exists. If another session inserts the same note first, the
// server reports a duplicate key when there is no transaction.
func (s *Store) putNote(ctx context.Context, note storekit.Note) (duplicate bool, err error) {
	result, err := s.inbox.UpdateOne(ctx, where("_id", noteID{note.Consumer, note.Key}),
		driver.Pipeline{{{Key: "$set",
			Value: bson.D{{Key: "delete_at", Value: bson.D{{Key: "$ifNull", Value: bson.A{"$delete_at", inTime(note.Retention)}}}}}}}},
		options.UpdateOne().SetUpsert(true))
	if driver.IsDuplicateKeyError(err) && driver.SessionFromContext(ctx) == nil {
		return true, nil
	}
	return err == nil && result.UpsertedCount == 0, err
}

// busy reports the conflict with another transaction. It drops the labels of the driver's error,
// because they would make Transact try again at once.
func busy(err error) error {
	if hasCode(err, codeWriteConflict) || driver.IsDuplicateKeyError(err) {
		return fmt.Errorf("%w: %v", storekit.ErrNoteBusy, err) //nolint:errorlint // see above
	}
	return err
}

// HasNote reports whether a message was noted for the consumer. See storekit.Inbox.
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
// deleted yet. See storekit.Inbox.
func (s *Store) DeleteNotes(ctx context.Context, limit int) (int, error) {
	return s.deleteOver(ctx, "delete notes", limit, s.inbox, "delete_at")
}
