package suite

import (
	"fmt"
	"time"

	"github.com/outmill/outmill"
)

// Rec makes a record. Tests name records by their message ids, so that a
// failure prints names.
func Rec(topic, name string, changes ...func(*outmill.Record)) *outmill.Record {
	r := &outmill.Record{Topic: topic, MessageID: name, Payload: []byte("payload of " + name)}
	for _, change := range changes {
		change(r)
	}
	return r
}

// WithKey sets the key of a record.
func WithKey(key string) func(*outmill.Record) {
	return func(r *outmill.Record) { r.Key = key }
}

// WithDelay sets the delay of a record.
func WithDelay(d time.Duration) func(*outmill.Record) {
	return func(r *outmill.Record) { r.Delay = d }
}

// WithTTL sets the time to live of a record.
func WithTTL(d time.Duration) func(*outmill.Record) {
	return func(r *outmill.Record) { r.TimeToLive = d }
}

// WithDedup sets the dedup key of a record.
func WithDedup(key string) func(*outmill.Record) {
	return func(r *outmill.Record) { r.DedupKey = key }
}

func withTenant(tenant string) func(*outmill.Record) {
	return func(r *outmill.Record) { r.TenantID = tenant }
}

// withPayload sets the payload of a record. "nil" is none.
func withPayload(payload string) func(*outmill.Record) {
	return func(r *outmill.Record) {
		if r.Payload = []byte(payload); payload == "nil" {
			r.Payload = nil
		}
	}
}

// Keyed makes a record of the topic Orders and the key for each name.
func Keyed(key string, names ...string) []*outmill.Record {
	return Recs(Orders, WithKey(key), names...)
}

// Recs makes a record for each name.
func Recs(topic string, change func(*outmill.Record), names ...string) []*outmill.Record {
	list := make([]*outmill.Record, len(names))
	for i, name := range names {
		list[i] = Rec(topic, name, change)
	}
	return list
}

// Plain changes nothing.
func Plain(*outmill.Record) {}

// Numbered makes n names.
func Numbered(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("m%04d", i)
	}
	return list
}

// Names are the message ids of the records.
func Names(records []*outmill.Record) []string {
	list := make([]string, len(records))
	for i, r := range records {
		list[i] = r.MessageID
	}
	return list
}

// ByName has the records by their message ids.
func ByName(records []*outmill.Record) map[string]*outmill.Record {
	all := map[string]*outmill.Record{}
	for _, r := range records {
		all[r.MessageID] = r
	}
	return all
}

// IDs are the ids of the records.
func IDs(records []*outmill.Record) []outmill.WorkItemID {
	list := make([]outmill.WorkItemID, len(records))
	for i, r := range records {
		list[i] = r.ID
	}
	return list
}

// Leases are the leases of the records.
func Leases(records []*outmill.Record) []outmill.Lease {
	list := make([]outmill.Lease, len(records))
	for i, r := range records {
		list[i] = r.Lease()
	}
	return list
}
