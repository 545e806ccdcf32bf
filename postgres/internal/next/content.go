package next

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// largeInsert is the size from which the server may be busy receiving a statement for longer than a transaction may be idle.
const largeInsert = 1 << 20

// Insert inserts rows in their order.
func (t *tx) Insert(ctx context.Context, rows []driver.NewRow) error {
	if len(rows) == 0 {
		return nil
	}
	size := 0
	for i := range rows {
		size += rows[i].Size
		t.state.Unrouted = t.state.Unrouted || rows[i].Group == ""
	}
	if size >= largeInsert && t.own != nil {
		t.add("patience", nil, nil)
	}
	t.addNotice(rows)
	t.add("insert", insertArgs(rows), nil)
	send := t.flush
	if t.inserts && t.rides {
		send = t.commit
	}
	err := send(ctx)
	if code(err) == codeUnique {
		err = taken(err)
	}
	return err
}

func insertArgs(rows []driver.NewRow) []any {
	text := func(of func(r *driver.NewRow) string) []string { return textsOf(rows, of) }
	number := func(of func(r *driver.NewRow) int64) string { return numbersOf(rows, of) }
	payloads := make([][]byte, len(rows))
	for i := range rows {
		if payloads[i] = rows[i].Record.Payload; payloads[i] == nil {
			// Which of them is nil is in the mark of the metadata.
			payloads[i] = []byte{}
		}
	}
	return []any{
		idsOf(rows, func(r *driver.NewRow) outmill.WorkItemID { return r.ID }), text(func(r *driver.NewRow) string { return r.Group }),
		text(func(r *driver.NewRow) string { return r.Name() }), text(func(r *driver.NewRow) string { return r.Key }),
		text(func(r *driver.NewRow) string { return r.Tenant }), number(func(r *driver.NewRow) int64 { return int64(r.Created) }),
		number(func(r *driver.NewRow) int64 { return int64(r.Size) }), number(func(r *driver.NewRow) int64 { return int64(r.Stage) }),
		number(func(r *driver.NewRow) int64 { return int64(r.Wake) }), number(func(r *driver.NewRow) int64 { return int64(r.Next) }),
		number(func(r *driver.NewRow) int64 { return int64(r.Expires) }),
		number(func(r *driver.NewRow) int64 { return int64(max(r.Next, r.Created)) }),
		idsOf(rows, func(r *driver.NewRow) outmill.WorkItemID { return r.Step }),
		idsOf(rows, func(r *driver.NewRow) outmill.JoinID { return r.WaitsFor }),
		text(func(r *driver.NewRow) string { return r.Message }), text(func(r *driver.NewRow) string { return r.Record.CorrelationID }),
		text(func(r *driver.NewRow) string { return r.Record.CausationID }), text(func(r *driver.NewRow) string { return r.Record.TraceParent }),
		text(func(r *driver.NewRow) string { return r.Record.TraceState }), text(func(r *driver.NewRow) string { return r.Record.DedupKey }),
		text(func(r *driver.NewRow) string { return storekit.JoinsText(r.Record.Joins) }), text(marked), payloads,
	}
}

// marked is the metadata behind a mark, which says whether there is a payload.
func marked(r *driver.NewRow) string {
	if r.Record.Payload == nil {
		return "-" + r.Metadata
	}
	return "+" + r.Metadata
}

type content struct {
	id outmill.WorkItemID
	driver.Content
}

func readContent(scan scan, c *content) error {
	r := &outmill.Record{}
	c.Record = r
	var due int64
	var joins, metadata string
	var history []byte
	err := scan((*[16]byte)(&c.id), &due, &r.MessageID, &r.CorrelationID, &r.CausationID, &r.TraceParent, &r.TraceState, &r.DedupKey, &joins,
		&r.LastError, &metadata, &r.Payload, &history)
	if err != nil {
		return err
	}
	refuse := func(column, want string) {
		if c.Broken != "" {
			c.Broken += "; "
		}
		c.Broken += "column " + column + ": want " + want
	}
	if !isTime(driver.Time(due)) {
		refuse("due_at", "a time")
		due = 0
	}
	r.DueAt, c.History = driver.Time(due).Of(), string(history)
	if r.Joins, err = storekit.ParseJoins(joins); err != nil {
		refuse("joins", "ids")
	}
	if metadata == "" {
		return nil
	}
	if r.Metadata, err = storekit.ParseMetadata([]byte(metadata)); err != nil {
		refuse("metadata", "a JSON object of texts")
	}
	if len(r.Metadata) == 0 {
		r.Metadata = nil
	}
	return nil
}

// Load returns the content of rows.
func (t *tx) Load(ctx context.Context, rows []driver.Row, want driver.Want) ([]driver.Content, error) {
	contents := make([]driver.Content, len(rows))
	if len(rows) == 0 {
		return contents, nil
	}
	loaded := t.addLoad(rows, want)
	err := t.flush(ctx)
	found := *loaded
	byID := make(map[outmill.WorkItemID]*content, len(found))
	for i := range found {
		byID[found[i].id] = &found[i]
	}
	for i := range rows {
		if c := byID[rows[i].ID]; c != nil {
			contents[i] = c.Content
		}
	}
	return contents, err
}

func (t *tx) addLoad(rows []driver.Row, want driver.Want) *[]content {
	return collect(t, "load", []any{idsOf(rows, func(r *driver.Row) outmill.WorkItemID { return r.ID }), int(want)}, readContent)
}
