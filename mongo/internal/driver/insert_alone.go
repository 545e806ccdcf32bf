package driver

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/engine/driver"
)

// insertAlone inserts a row outside of a transaction. If the server's answer is lost, also to the client's repetition, the Update begins
// again, and may find that the row is stored already.
func (t *tx) insertAlone(ctx context.Context, n *driver.NewRow, tells *notice) error {
	_, err := t.d.records.InsertOne(alone(ctx), bson.Raw(t.d.appendRow(nil, n, tells)))
	switch {
	case err == nil:
	case !mongo.IsDuplicateKeyError(err):
		t.unanswered = append(t.unanswered, *n)
	default:
		for i := range t.unanswered {
			if stored, failed := t.isStored(ctx, &t.unanswered[i]); stored || failed != nil {
				return failed
			}
		}
	}
	return taken(err)
}

// isStored reports whether a row is that of an insert without an answer, and not that of another record with its id. Since then a claim
// may have taken it.
func (t *tx) isStored(ctx context.Context, n *driver.NewRow) (bool, error) {
	raw, err := t.d.records.FindOne(alone(ctx), append(idIs(uuid(n.ID)), bson.E{Key: "topic", Value: n.Name()},
		bson.E{Key: "created", Value: int64(n.Created)}, bson.E{Key: "content.message", Value: n.Message})).Raw()
	if err == mongo.ErrNoDocuments { //nolint:errorlint // the driver returns it as it is
		return false, nil
	}
	if err == nil {
		t.state.Now = readRow(raw).Created
	}
	return err == nil, err
}
