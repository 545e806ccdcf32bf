package storekit

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/outmill/outmill"
)

// DedupKey names a dedup key of a topic.
type DedupKey struct {
	Topic string `bson:"topic"`
	Key   string `bson:"key"`
}

// Appending is the work of one Append. A store may try it more than once, because no
// record changes before Report.
type Appending struct {
	Records []*outmill.Record
	// IDs are those of the records: the writer's, or new ones.
	IDs []outmill.WorkItemID
	// Duplicate tells which records are left out because of their dedup key. At first
	// they are those whose key another record of the call has, too. The store adds
	// those whose key was seen before.
	Duplicate []bool
	// First is the first record with each dedup key.
	First map[DedupKey]int
}

// NewAppending prepares records that [CheckRecords] has accepted.
func NewAppending(records []*outmill.Record) *Appending {
	a := &Appending{Records: records, IDs: make([]outmill.WorkItemID, len(records)), Duplicate: make([]bool, len(records))}
	for i, r := range records {
		if a.IDs[i] = r.ID; r.ID.IsZero() {
			a.IDs[i] = outmill.NewWorkItemID()
		}
		if r.DedupKey == "" {
			continue
		}
		if a.First == nil {
			a.First = map[DedupKey]int{}
		}
		key := DedupKey{r.Topic, r.DedupKey}
		if _, seen := a.First[key]; seen {
			a.Duplicate[i] = true
			continue
		}
		a.First[key] = i
	}
	return a
}

// Repeats tells whether an earlier record of the call has the dedup key of record i, so
// that this one is no candidate at all.
func (a *Appending) Repeats(i int) bool {
	r := a.Records[i]
	return r.DedupKey != "" && a.First[DedupKey{r.Topic, r.DedupKey}] != i
}

// Metadata is the records' metadata as JSON texts, "" for a record without any. check
// may refuse a record by its text.
func (a *Appending) Metadata(check func(i int, r *outmill.Record, metadata string) error) ([]string, error) {
	texts := make([]string, len(a.Records))
	for i, r := range a.Records {
		if len(r.Metadata) > 0 {
			text, err := json.Marshal(r.Metadata)
			if err != nil {
				return nil, fmt.Errorf("record %d: metadata: %w", i, err)
			}
			texts[i] = string(text)
		}
		if err := check(i, r, texts[i]); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// Report sets on the records what Append sets. The store calls it once, after the append
// has succeeded.
func (a *Appending) Report() {
	for i, r := range a.Records {
		r.ID, r.Duplicate = a.IDs[i], a.Duplicate[i]
		if r.MessageID == "" {
			r.MessageID = r.ID.String()
		}
	}
}

// Finish ends an append that has succeeded: it reports on the records, logs them, and
// tells readers of their topics. In a caller's transaction it leaves that to the commit,
// where the store sees it: see [GatherTopics].
func (a *Appending) Finish(ctx context.Context, store any, inTransaction bool, log *Log, readers *Notifier) {
	a.Report()
	log.Appended(inTransaction, a.Records...)
	topics := TopicsOf(a.Records)
	if inTransaction {
		NoteTopics(ctx, store, topics)
		return
	}
	readers.Notify(topics...)
}
