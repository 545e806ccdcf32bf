package importmongo

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	outmillmongo "github.com/outmill/outmill/mongo"
)

// mover moves the documents of one collection.
type mover struct {
	o      Options
	layout layout
	// topic and key are those of o, or the defaults of the layout.
	topic, key template
	store      *outmillmongo.Store
	old        *mongo.Collection
	// archive gets the moved documents; nil if there is no archive.
	archive *mongo.Collection
	// progress runs after each transaction, and skipped for each document that cannot be moved.
	progress func(Result)
	skipped  func(id string, reason error)
	result   Result
	// malformed are documents that cannot be moved and were reported.
	malformed map[string]bool
}

// candidate is a document that is not done.
type candidate struct {
	id bson.RawValue
	at time.Time
}

// pass moves all documents that can be moved now, oldest first, and returns their number.
func (m *mover) pass(ctx context.Context) (moved int, err error) {
	before := m.result.Moved + m.result.Known
	candidates, err := m.survey(ctx)
	for len(candidates) > 0 && err == nil {
		var taken int
		taken, err = m.moveSome(ctx, candidates[:min(m.o.Batch, len(candidates))])
		candidates = candidates[taken:]
	}
	return m.result.Moved + m.result.Known - before, err
}

// survey returns the documents that can be moved, in the order in which they happened, and counts
// the others. It reads a few fields of each document.
func (m *mover) survey(ctx context.Context) ([]candidate, error) {
	now, err := m.serverTime(ctx)
	if err != nil {
		return nil, err
	}
	cursor, err := m.old.Find(ctx, m.notDone(), options.Find().SetProjection(m.layout.projection()))
	if err != nil {
		return nil, err
	}
	defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }()
	m.result.Leased, m.result.Dead = 0, 0
	var list []candidate
	for cursor.Next(ctx) {
		s, err := m.layout.read(cursor.Current, m.o, now)
		switch {
		case err != nil:
			if err := m.refuse(cursor.Current, err); err != nil {
				return nil, err
			}
		case s.leased:
			m.result.Leased++
		case s.dead && !m.o.Dead:
			m.result.Dead++
		default:
			list = append(list, candidate{copied(cursor.Current.Lookup("_id")), s.at})
		}
	}
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(a.at.Compare(b.at), bytes.Compare(a.id.Value, b.id.Value))
	})
	return list, cursor.Err()
}

func (m *mover) notDone() bson.D {
	if m.layout.done == nil {
		return bson.D{{Key: m.layout.status, Value: nil}}
	}
	return bson.D{{Key: m.layout.status, Value: bson.D{{Key: "$ne", Value: m.layout.done}}}}
}

func copied(v bson.RawValue) bson.RawValue {
	return bson.RawValue{Type: v.Type, Value: bytes.Clone(v.Value)}
}

// serverTime returns the time of the server. It runs outside of transactions, because the server
// does not return its time inside. The leases of the old workers follow their own clocks.
func (m *mover) serverTime(ctx context.Context) (time.Time, error) {
	var hello struct {
		LocalTime time.Time `bson:"localTime"`
	}
	err := m.old.Database().RunCommand(mongo.NewSessionContext(ctx, nil), bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
	return hello.LocalTime, err
}

// moveSome moves the first candidates in one transaction, as many as fit, and returns their
// number. It leaves documents that have changed since the survey to the next pass. If an old worker
// takes a document at the same time, the transaction has a write conflict and is repeated, and only
// one of both gets the document.
func (m *mover) moveSome(ctx context.Context, candidates []candidate) (taken int, err error) {
	var b *batch
	err = m.store.InTx(ctx, func(ctx context.Context) error {
		var err error
		if b, err = m.gather(ctx, candidates); err != nil || len(b.ids) == 0 {
			return err
		}
		if err := m.store.Append(ctx, b.records...); err != nil {
			return err
		}
		return m.takeAway(ctx, b)
	})
	if err != nil {
		return 0, err
	}
	for _, r := range b.records {
		if r.Duplicate {
			m.result.Known++
		} else {
			m.result.Moved++
		}
	}
	m.progress(m.result)
	return b.taken, nil
}

// takeAway deletes the moved documents. If it cannot delete all of them, none is moved.
func (m *mover) takeAway(ctx context.Context, b *batch) error {
	if m.archive != nil {
		if _, err := m.archive.InsertMany(ctx, b.documents); err != nil {
			return fmt.Errorf("archive: %w", err)
		}
	}
	deleted, err := m.old.DeleteMany(ctx, among(b.ids))
	if err == nil && int(deleted.DeletedCount) != len(b.ids) {
		err = fmt.Errorf("%d of %d documents are gone: does another program delete them?", len(b.ids)-int(deleted.DeletedCount), len(b.ids))
	}
	return err
}

func among(ids bson.A) bson.D {
	return bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}
}

// ErrMalformed says that a document cannot be moved. The error names it.
var ErrMalformed = errors.New("a document cannot be moved")

// refuse reports a document that cannot be moved, once, and never its content.
func (m *mover) refuse(doc bson.Raw, reason error) error {
	id := doc.Lookup("_id")
	if !m.o.SkipMalformed {
		return fmt.Errorf("%w, %s: %w; with --skip-malformed it is left where it is", ErrMalformed, id, reason)
	}
	if !m.malformed[nameOf(id)] {
		m.malformed[nameOf(id)] = true
		m.result.Malformed++
		m.skipped(id.String(), reason)
	}
	return nil
}
