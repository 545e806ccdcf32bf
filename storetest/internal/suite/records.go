package suite

import (
	"fmt"
	"time"

	"github.com/outmill/outmill"
)

// rec makes a record. Tests name records by their message ids, so that a
// failure prints names.
func Rec(topic, name string, changes ...func(*outmill.Record)) *outmill.Record {
	r := &outmill.Record{Topic: topic, MessageID: name, Payload: []byte("payload of " + name)}
	for _, change := range changes {
		change(r)
	}
	return r
}

func WithKey(key string) func(*outmill.Record) {
	return func(r *outmill.Record) { r.Key = key }
}

func WithDelay(d time.Duration) func(*outmill.Record) {
	return func(r *outmill.Record) { r.Delay = d }
}

func WithTTL(d time.Duration) func(*outmill.Record) {
	return func(r *outmill.Record) { r.TimeToLive = d }
}

func WithDedup(key string) func(*outmill.Record) {
	return func(r *outmill.Record) { r.DedupKey = key }
}

func withPayload(payload string) func(*outmill.Record) {
	return func(r *outmill.Record) { r.Payload = []byte(payload) }
}

func Keyed(key string, names ...string) []*outmill.Record {
	return Recs(Orders, WithKey(key), names...)
}

func Recs(topic string, change func(*outmill.Record), names ...string) []*outmill.Record {
	list := make([]*outmill.Record, len(names))
	for i, name := range names {
		list[i] = Rec(topic, name, change)
	}
	return list
}

func Plain(*outmill.Record) {}

func Numbered(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("m%04d", i)
	}
	return list
}

func Names(records []*outmill.Record) []string {
	list := make([]string, len(records))
	for i, r := range records {
		list[i] = r.MessageID
	}
	return list
}

func ByName(records []*outmill.Record) map[string]*outmill.Record {
	all := map[string]*outmill.Record{}
	for _, r := range records {
		all[r.MessageID] = r
	}
	return all
}

func IDs(records []*outmill.Record) []outmill.WorkItemID {
	list := make([]outmill.WorkItemID, len(records))
	for i, r := range records {
		list[i] = r.ID
	}
	return list
}

func Leases(records []*outmill.Record) []outmill.Lease {
	list := make([]outmill.Lease, len(records))
	for i, r := range records {
		list[i] = r.Lease()
	}
	return list
}
