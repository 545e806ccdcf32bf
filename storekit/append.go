package storekit

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

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
	// IDs are the ids of the records: the writer's, or new ones.
	IDs []outmill.WorkItemID
	// Duplicate marks the records that are skipped because of their dedup key. NewAppending
	// marks those whose key an earlier record of the call has. The store marks those whose key
	// was seen before.
	Duplicate []bool
	// First is the first record with each dedup key.
	First map[DedupKey]int
	// CreatedAt is the time of the append, by the database's clock and as the records have
	// it. The store sets it before Report.
	CreatedAt time.Time

	// groups are those that read each record, the first of which has its id.
	groups [][]string
	// one has the lists of a call with one record.
	one struct {
		ids       [1]outmill.WorkItemID
		duplicate [1]bool
		groups    [1][]string
	}
}

// NewAppending prepares records that [CheckRecords] has accepted.
func NewAppending(records []*outmill.Record) *Appending {
	a := &Appending{Records: records}
	if a.IDs, a.Duplicate, a.groups = a.one.ids[:], a.one.duplicate[:], a.one.groups[:]; len(records) != 1 {
		a.IDs, a.Duplicate = make([]outmill.WorkItemID, len(records)), make([]bool, len(records))
		a.groups = make([][]string, len(records))
	}
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

// Repeats reports whether an earlier record of the call has the dedup key of record i, so
// that record i is skipped in any case.
func (a *Appending) Repeats(i int) bool {
	r := a.Records[i]
	return r.DedupKey != "" && a.First[DedupKey{r.Topic, r.DedupKey}] != i
}

// Deliver returns the id of the record that is written of record i for the nth of the
// groups that read its topic, and notes the group for Report. A record that waits for a
// group is delivered to "", as the first. The records of the other groups have ids by CopyID.
func (a *Appending) Deliver(i, n int, group string) outmill.WorkItemID {
	if n == 0 {
		a.groups[i] = []string{group}
		return a.IDs[i]
	}
	a.groups[i] = append(a.groups[i], group)
	return outmill.CopyID(a.IDs[i], group)
}

// DeliverAll is Deliver for each of the groups. The records of a topic may share the list.
func (a *Appending) DeliverAll(i int, groups []string) { a.groups[i] = groups }

// Metadata returns the records' metadata as JSON texts; "" is no metadata. check may refuse
// a record because of its text.
func (a *Appending) Metadata(check func(i int, r *outmill.Record, metadata string) error) ([]string, error) {
	texts := make([]string, len(a.Records))
	for i, r := range a.Records {
		var err error
		if texts[i], err = MetadataText(r.Metadata); err != nil {
			return nil, fmt.Errorf("record %d: metadata: %w", i, err)
		}
		if err := check(i, r, texts[i]); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// MetadataText returns metadata as a JSON text; "" is no metadata.
func MetadataText(metadata map[string]string) (string, error) {
	if len(metadata) == 0 {
		return "", nil
	}
	if text, plain := writePlain(metadata); plain {
		return text, nil
	}
	text, err := json.Marshal(metadata)
	return string(text), err
}

// Report sets the fields of the records that Append sets. The store calls it once, after
// the append has succeeded.
func (a *Appending) Report() {
	for i, r := range a.Records {
		r.ID, r.Duplicate = a.IDs[i], a.Duplicate[i]
		if r.MessageID == "" {
			r.MessageID = r.ID.String()
		}
		r.Group, r.CopiedTo, r.CreatedAt = "", nil, time.Time{}
		if a.Duplicate[i] {
			continue
		}
		r.CreatedAt = a.CreatedAt.UTC()
		if groups := a.groups[i]; len(groups) > 0 {
			r.Group = groups[0]
			if len(groups) > 1 {
				r.CopiedTo = groups[1:]
			}
		}
	}
}

// Topics are the topics of the records that are not duplicates, each once. If there are more than a [TopicSet] keeps,
// the list is empty, which stands for any topic. appended is false if all records are duplicates.
func (a *Appending) Topics() (list []string, appended bool) {
	if len(a.Records) == 1 && !a.Duplicate[0] {
		return []string{a.Records[0].Topic}, true
	}
	var topics TopicSet
	for i, r := range a.Records {
		if !a.Duplicate[i] {
			topics.Add(r.Topic)
			appended = true
		}
	}
	return topics.List(), appended
}

// Finish ends a successful append: it calls Report, logs the append, and wakes the readers
// of the topics. In a caller's transaction, if the store sees the commit, the commit wakes
// the readers: see [GatherTopics].
func (a *Appending) Finish(ctx context.Context, store any, inTransaction bool, log *Log, readers *Notifier) {
	a.Report()
	log.Appended(inTransaction, a.Records...)
	topics, appended := a.Topics()
	if !appended {
		return
	}
	if inTransaction {
		NoteTopics(ctx, store, topics)
		return
	}
	readers.Notify(topics...)
}
