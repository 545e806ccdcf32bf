package importmongo

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
	outmillmongo "github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/storekit"
)

// maxBytes limits the total size of the documents of a transaction, unless a single document is
// larger.
const maxBytes = 16 << 20

// batch has the documents that one transaction moves.
type batch struct {
	// taken is the number of candidates that were read.
	taken     int
	documents []bson.Raw
	ids       bson.A
	records   []*outmill.Record
}

// gather reads the documents, and makes records of those that may still be
// moved, in the order of the candidates.
func (m *mover) gather(ctx context.Context, candidates []candidate) (*batch, error) {
	now, err := m.serverTime(ctx)
	if err != nil {
		return nil, err
	}
	found, err := m.load(ctx, candidates)
	if err != nil {
		return nil, err
	}
	b := &batch{}
	size := 0
	for _, c := range candidates {
		doc := found[nameOf(c.id)]
		if size += len(doc); size > maxBytes && b.taken > 0 {
			break
		}
		b.taken++
		if doc == nil {
			continue
		}
		if err := m.add(b, doc, now); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (m *mover) load(ctx context.Context, candidates []candidate) (map[string]bson.Raw, error) {
	ids := make(bson.A, len(candidates))
	for i, c := range candidates {
		ids[i] = c.id
	}
	cursor, err := m.old.Find(ctx, append(m.notDone(), among(ids)...))
	if err != nil {
		return nil, err
	}
	var list []bson.Raw
	if err := cursor.All(ctx, &list); err != nil {
		return nil, err
	}
	found := map[string]bson.Raw{}
	for _, doc := range list {
		found[nameOf(doc.Lookup("_id"))] = doc
	}
	return found, nil
}

func nameOf(id bson.RawValue) string { return string([]byte{byte(id.Type)}) + string(id.Value) }

func (m *mover) add(b *batch, doc bson.Raw, now time.Time) error {
	s, err := m.layout.read(doc, m.o, now)
	if err == nil && (s.leased || s.dead && !m.o.Dead) {
		return nil
	}
	var records []*outmill.Record
	if err == nil {
		records, err = m.recordsOf(doc)
	}
	if err != nil {
		return m.refuse(doc, err)
	}
	b.records = append(b.records, records...)
	b.documents = append(b.documents, doc)
	b.ids = append(b.ids, doc.Lookup("_id"))
	return nil
}

// recordsOf makes a record of the document, or of each of its parts.
func (m *mover) recordsOf(doc bson.Raw) ([]*outmill.Record, error) {
	parts := []bson.Raw{doc}
	if m.layout.parts != nil {
		var err error
		if parts, err = m.layout.parts(doc); err != nil {
			return nil, err
		}
	}
	records := make([]*outmill.Record, len(parts))
	for i, part := range parts {
		var err error
		if records[i], err = m.record(part); err != nil {
			return nil, err
		}
	}
	return records, nil
}

func (m *mover) record(doc bson.Raw) (*outmill.Record, error) {
	topic, complete, err := m.topic.fill(doc)
	if err == nil && !complete {
		err = fmt.Errorf("it has not all the fields of the topic %s", m.topic)
	}
	if err != nil {
		return nil, err
	}
	key, complete, err := m.key.fill(doc)
	if err != nil {
		return nil, err
	}
	if !complete {
		key = ""
	}
	r := &outmill.Record{Topic: topic, Key: key}
	if err := m.layout.record(doc, r); err != nil {
		return nil, err
	}
	return r, storekit.CheckRecords([]*outmill.Record{r}, outmillmongo.DefaultMaxPayload)
}
