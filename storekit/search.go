package storekit

import (
	"strconv"
	"strings"
	"time"

	"github.com/outmill/outmill"
)

// Matches tells whether the query matches the record. It does not look at After and Limit.
func Matches(query outmill.ListQuery, r *outmill.Record) bool {
	same := func(want, have string) bool { return want == "" || want == have }
	return same(query.Group, r.Group) && same(query.Topic, r.Topic) && same(string(query.Status), string(r.Status)) &&
		same(query.Key, r.Key) && same(query.MessageID, r.MessageID) && same(query.CorrelationID, r.CorrelationID) &&
		same(query.TenantID, r.TenantID) && same(query.Contract, firstOf(r.Metadata, ContractNames)) &&
		same(VersionText(query.ContractVersion), firstOf(r.Metadata, ContractVersionNames)) && strings.Contains(r.LastError, query.ErrorText) &&
		(query.CreatedAfter.IsZero() || !r.CreatedAt.Before(query.CreatedAfter)) &&
		(query.CreatedBefore.IsZero() || r.CreatedAt.Before(query.CreatedBefore))
}

// ContractNames and ContractVersionNames are the names of the metadata that has the contract of a
// message and its version, in their order: the first one that a message has counts. A search
// compares its value with outmill.ListQuery.Contract, and with the VersionText of
// outmill.ListQuery.ContractVersion.
var (
	ContractNames        = []string{outmill.MetadataContract, "ce_type"}
	ContractVersionNames = []string{outmill.MetadataContractVersion, "ce_contractversion"}
)

// VersionText is a version of a contract as the metadata has it; "" for 0, which is all versions.
func VersionText(version int) string {
	if version == 0 {
		return ""
	}
	return strconv.Itoa(version)
}

func firstOf(metadata map[string]string, names []string) string {
	for _, name := range names {
		if value, has := metadata[name]; has {
			return value
		}
	}
	return ""
}

// CeilTime rounds a time up to what a database keeps, so that to compare it with times that
// the database keeps has the same result as before. The zero time stays.
func CeilTime(t time.Time, to time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	if whole := t.Truncate(to); whole.Before(t) {
		return whole.Add(to)
	}
	return t.Round(0)
}
