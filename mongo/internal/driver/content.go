package driver

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// insertAtOnce bounds the bytes of the documents in one command, because a command is itself a document. A larger document has a
// command of its own.
const insertAtOnce = 8 << 20

// errOutside is a fault of the engine: a caller's transaction only appends.
var errOutside = errors.New("a caller's transaction changes no rows: this is a fault of package engine")

// Insert inserts rows in their order. One row needs no transaction, if nothing else is written.
func (t *tx) Insert(ctx context.Context, rows []driver.NewRow) (err error) {
	if len(rows) == 0 {
		return nil
	}
	tells := noticeOf(rows)
	if t.inserts && len(rows) == 1 && t.session == nil {
		return t.insertAlone(ctx, &rows[0], &tells)
	}
	own, err := t.begin(ctx)
	for len(rows) > 0 && err == nil {
		n := 1
		for size := rows[0].Size; n < len(rows) && size+rows[n].Size <= insertAtOnce; n++ {
			size += rows[n].Size
		}
		t.wrote = true
		err = t.insert(own, rows[:n], &tells)
		for i := range rows[:n] {
			t.state.Unrouted = t.state.Unrouted || rows[i].Group == ""
		}
		rows = rows[n:]
	}
	return err
}

// insert sends one command. The client's InsertMany would decode and encode each document again.
func (t *tx) insert(ctx context.Context, rows []driver.NewRow, tells *notice) error {
	start, command := bsoncore.AppendDocumentStart(nil)
	command = bsoncore.AppendStringElement(command, "insert", t.d.records.Name())
	list, command := bsoncore.AppendArrayElementStart(command, "documents")
	for i := range rows {
		command = append(append(append(command, byte(bson.TypeEmbeddedDocument)), fmt.Sprint(i)...), 0)
		command = t.d.appendRow(command, &rows[i], tells)
	}
	command, _ = bsoncore.AppendArrayEnd(command, list)
	command, _ = bsoncore.AppendDocumentEnd(command, start)
	reply, err := t.d.db.RunCommand(ctx, bson.Raw(command)).Raw()
	if err != nil {
		return err
	}
	var failed struct {
		Errors []struct {
			Code    int32  `bson:"code"`
			Message string `bson:"errmsg"`
		} `bson:"writeErrors"`
	}
	if err := bson.Unmarshal(reply, &failed); err != nil || len(failed.Errors) == 0 {
		return err
	}
	return taken(mongo.CommandError{Code: failed.Errors[0].Code, Message: failed.Errors[0].Message})
}

// taken explains that one of the ids of an Insert exists.
func taken(err error) error {
	if err == nil || !mongo.IsDuplicateKeyError(err) {
		return err
	}
	return fmt.Errorf("a record with one of these ids exists: leave the id empty, and Append makes one (%w)", err)
}

// Replace writes another payload and metadata.
func (t *tx) Replace(ctx context.Context, n driver.NewRow) error {
	own, err := t.begin(ctx)
	if err != nil {
		return err
	}
	set, unset := bson.D{{Key: "size", Value: int64(n.Size)}}, bson.D{}
	put := func(field string, has bool, value any) {
		if has {
			set = append(set, bson.E{Key: field, Value: value})
		} else {
			unset = append(unset, bson.E{Key: field, Value: ""})
		}
	}
	payload, escaped := t.d.payloadOf(&n)
	put("content.payload", n.Record.Payload != nil, bson.RawValue{Type: bson.Type(payload.Type), Value: payload.Data})
	put("content."+fieldEscaped, escaped, true)
	put("content.metadata", n.Metadata != "" && n.Metadata != "{}", n.Metadata)
	// A claim that has read the content before does not get the row any more.
	change := bson.D{{Key: "$set", Value: set}, {Key: "$inc", Value: bson.D{{Key: "edits", Value: 1}}}}
	if len(unset) > 0 {
		change = append(change, bson.E{Key: "$unset", Value: unset})
	}
	_, err = t.d.records.UpdateOne(own, idIs(uuid(n.ID)), change)
	return err
}

// Attach makes rows records of a step.
func (t *tx) Attach(ctx context.Context, step outmill.WorkItemID, join outmill.JoinID, rows []driver.Row) error {
	own, err := t.begin(ctx)
	if err != nil {
		return err
	}
	ids := make(bson.A, len(rows))
	for i := range rows {
		ids[i] = uuid(rows[i].ID)
	}
	_, err = t.d.records.UpdateMany(own, bson.D{in("_id", ids)}, bson.D{
		{Key: "$set", Value: bson.D{{Key: "step", Value: uuid(step)}}}, {Key: "$push", Value: bson.D{{Key: "content.joins", Value: uuid(join)}}},
	})
	return err
}

// Adopt gives rows to a group. If another transaction has changed one of them, this one begins again.
func (t *tx) Adopt(ctx context.Context, from driver.Line, group string, limit int) (int, error) {
	own, err := t.begin(ctx)
	if err != nil {
		return 0, err
	}
	rows, err := t.search(ctx, false, []driver.Search{{By: driver.ByUnrouted, Line: from, Limit: limit}})
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	ids := make(bson.A, len(rows))
	for i := range rows {
		ids[i] = uuid(rows[i].ID)
	}
	result, err := t.d.records.UpdateMany(own, bson.D{in("_id", ids)}, bson.D{{Key: "$set", Value: bson.D{{Key: "grp", Value: group}}}})
	if err != nil {
		return 0, err
	}
	return int(result.MatchedCount), nil
}
