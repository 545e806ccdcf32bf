package storekit

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// Searched is what a search came to.
type Searched struct {
	// IDs are those of records that match, in their order.
	IDs []outmill.WorkItemID
	// Examined, Next and Done are those of the Page.
	Examined int
	Next     outmill.WorkItemID
	Done     bool
}

func (s Searched) page() roles.Page {
	return roles.Page{Examined: s.Examined, Next: s.Next, Done: s.Done}
}

// SearchRange is one of the ranges that a search goes through: what an index has in the
// order of ids, such as the dead records of a group's topic, or all records.
type SearchRange struct {
	// Nth is the range.
	Nth int
	// After is the id behind which to look next.
	After outmill.WorkItemID
}

// Looked is a record that was looked at.
type Looked struct {
	// Nth is the range that has it.
	Nth int
	ID  outmill.WorkItemID
	// Matches tells whether the query matches it.
	Matches bool
}

// Search looks at what the ranges have behind query.After, in the order of ids across all of
// them, until it has query.Limit records that match, has looked at about MaxExamined, or all
// is done. look returns, in any order, the first records of each of the ranges behind its
// After: each of them, or fewer where no more are left. It gets small numbers first, and then
// about as many as the share of the records that matched so far calls for, so that it reads few
// records in vain.
func Search(query outmill.ListQuery, ranges int, look func(ranges []SearchRange, each int) ([]Looked, error)) (Searched, error) {
	open := make([]SearchRange, ranges)
	for i := range open {
		open[i] = SearchRange{i, query.After}
	}
	var seen []Looked
	budget, each := roles.MaxExamined, query.Limit
	for least := query.Limit; len(open) > 0; least *= 2 {
		each = min(each, max(1, budget/len(open)))
		found, err := look(open, each)
		if err != nil {
			return Searched{}, err
		}
		seen, budget = append(seen, found...), budget-len(found)
		open = stillOpen(open, found, each)
		result := searched(query, seen, open)
		if len(result.IDs) == query.Limit || budget < len(open) || budget <= 0 {
			return result, nil
		}
		each = max(2*least, min(8*each, result.lacking(query.Limit)/max(1, len(open))))
	}
	return searched(query, seen, nil), nil
}

// lacking estimates how many more records a search has to look at until limit of them match. The
// estimate is a quarter too high, because one that is too low costs a further query.
func (s Searched) lacking(limit int) int {
	if len(s.IDs) == 0 {
		return roles.MaxExamined
	}
	return (limit - len(s.IDs)) * s.Examined / len(s.IDs) * 5 / 4
}

// stillOpen are the ranges that have more.
func stillOpen(open []SearchRange, found []Looked, each int) []SearchRange {
	count, last := map[int]int{}, map[int]outmill.WorkItemID{}
	for _, c := range found {
		count[c.Nth]++
		if compareIDs(c.ID, last[c.Nth]) > 0 {
			last[c.Nth] = c.ID
		}
	}
	var more []SearchRange
	for _, r := range open {
		if count[r.Nth] >= each {
			more = append(more, SearchRange{r.Nth, last[r.Nth]})
		}
	}
	return more
}

// searched is the result as far as all ranges have been looked at: up to the least id at
// which one of them is open.
func searched(query outmill.ListQuery, seen []Looked, open []SearchRange) Searched {
	seen = slices.Clone(seen)
	slices.SortFunc(seen, func(a, b Looked) int { return compareIDs(a.ID, b.ID) })
	end := len(seen)
	for _, r := range open {
		n, _ := slices.BinarySearchFunc(seen, r.After, func(c Looked, id outmill.WorkItemID) int { return compareIDs(c.ID, id) })
		for n < len(seen) && seen[n].ID == r.After {
			n++
		}
		end = min(end, n)
	}
	result := Searched{Next: query.After, Done: len(open) == 0}
	for i := 0; i < end; i++ {
		c := seen[i]
		// A record that moves from one range to another may be in both.
		for i+1 < end && seen[i+1].ID == c.ID {
			i++
			c.Matches = c.Matches || seen[i].Matches
		}
		result.Examined++
		if result.Next = c.ID; !c.Matches {
			continue
		}
		if result.IDs = append(result.IDs, c.ID); len(result.IDs) == query.Limit {
			result.Done = result.Done && i == end-1
			break
		}
	}
	return result
}

func compareIDs(a, b outmill.WorkItemID) int { return bytes.Compare(a[:], b[:]) }

// ByStatus tells whether a search goes through the records of that status of each group and
// topic, which an index has in the order of ids, or through all records.
func ByStatus(status outmill.Status) bool {
	return status != "" && status != outmill.StatusPending
}

// InRange tells whether a query may match records of the group's topic.
func InRange(query outmill.ListQuery, group, topic string) bool {
	return (query.Group == "" || query.Group == group) && (query.Topic == "" || query.Topic == topic)
}

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
