package driver

import (
	"context"
	"database/sql"
	"fmt"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// newItem is a row of the table type new_records: its fields are the columns, in order.
type newItem struct {
	Place                                                         int64
	ID                                                            []byte
	Group, Topic, Key, Tenant                                     string
	Created, Size, Stage, Wake, Next, Expires, Due                int64
	Step, WaitsFor                                                []byte
	Message                                                       string
	Correlation, Causation, TraceParent, TraceState, Dedup, Joins sql.NullString
	Metadata                                                      sql.NullString
	Payload                                                       []byte
}

// some is a text, or NULL if the text is empty.
func some(text string) sql.NullString { return sql.NullString{String: text, Valid: text != ""} }

// someID is an id, or NULL if there is none.
func someID(id [16]byte) []byte {
	if id == [16]byte{} {
		return nil
	}
	return id[:]
}

func newItemOf(place int, r *driver.NewRow) newItem {
	return newItem{
		int64(place), r.ID[:], r.Group, r.Name(), r.Key, r.Tenant,
		int64(r.Created), int64(r.Size), int64(r.Stage), int64(r.Wake), int64(r.Next), int64(r.Expires), int64(max(r.Next, r.Created)),
		someID(r.Step), someID(r.WaitsFor), r.Message,
		some(r.Record.CorrelationID), some(r.Record.CausationID), some(r.Record.TraceParent), some(r.Record.TraceState), some(r.Record.DedupKey),
		some(storekit.JoinsText(r.Record.Joins)), some(r.Metadata), r.Record.Payload,
	}
}

// Insert inserts rows in their order.
func (t *tx) Insert(ctx context.Context, rows []driver.NewRow) error {
	if len(rows) == 0 {
		return nil
	}
	items := make([]newItem, len(rows))
	for i := range rows {
		items[i] = newItemOf(i, &rows[i])
		t.state.Unrouted = t.state.Unrouted || rows[i].Group == ""
	}
	err := t.query(ctx, "insert", args{"rows": mssql.TVP{TypeName: t.d.names.typeName("new_records"), Value: items}})
	if n := number(err); n == errDuplicate || n == errDuplicateKey {
		err = fmt.Errorf("a record with one of these ids exists: leave the id empty, and Append makes one (%w)", err)
	}
	return err
}

// Replace writes another payload and metadata.
func (t *tx) Replace(ctx context.Context, r driver.NewRow) error {
	return t.query(ctx, "replace",
		args{"id": r.ID[:], "size": r.Size, "metadata": sqlkit.OrNull(r.Metadata), "payload": r.Record.Payload})
}

// Attach makes rows records of a step.
func (t *tx) Attach(ctx context.Context, step outmill.WorkItemID, join outmill.JoinID, rows []driver.Row) error {
	return t.query(ctx, "attach", args{"ids": idsOf(rows, rowID), "step": step[:], "join": join.String()})
}

// Load returns the content of rows.
func (t *tx) Load(ctx context.Context, rows []driver.Row, want driver.Want) ([]driver.Content, error) {
	found, err := list(ctx, t, "load", args{"ids": idsOf(rows, rowID), "want": int(want)}, sqlkit.ReadContent)
	return sqlkit.Contents(rows, found), err
}
