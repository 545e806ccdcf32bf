package storekit

import (
	"cmp"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

const (
	defaultListLimit  = 100
	defaultStatsLimit = 10_000
)

// CheckList returns the query with its default Limit, 100, and times in whole microseconds, and refuses a negative Limit
// or ContractVersion, an unknown Status, and texts that no record can have, as an outmill.ErrInvalidConfig.
func CheckList(query outmill.ListQuery) (outmill.ListQuery, error) {
	if query.Limit < 0 {
		return query, InvalidConfig("ListQuery.Limit is %d: want 0 (%d) or more", query.Limit, defaultListLimit)
	}
	if query.Status != "" {
		if _, err := outmill.ParseStatus(string(query.Status)); err != nil {
			return query, InvalidConfig("ListQuery.Status: %w", err)
		}
	}
	for field, text := range map[string]string{
		"Group": query.Group, "Topic": query.Topic, "Key": query.Key, "MessageID": query.MessageID,
		"CorrelationID": query.CorrelationID, "TenantID": query.TenantID, "ErrorText": query.ErrorText, "Contract": query.Contract,
	} {
		if wrong := checkText(text, 0); wrong != "" {
			return query, InvalidConfig("ListQuery.%s %s", field, wrong)
		}
	}
	if query.ContractVersion < 0 {
		return query, InvalidConfig("ListQuery.ContractVersion is %d: want 0 (all versions) or more", query.ContractVersion)
	}
	query.CreatedAfter, query.CreatedBefore = CeilTime(query.CreatedAfter, time.Microsecond), CeilTime(query.CreatedBefore, time.Microsecond)
	query.Limit = cmp.Or(query.Limit, defaultListLimit)
	return query, nil
}

// CheckStats returns the limit of Stats, 10,000 instead of 0, and refuses a negative one as
// an outmill.ErrInvalidConfig.
func CheckStats(limit int) (int, error) {
	if limit < 0 {
		return 0, InvalidConfig("Stats: limit is %d: want 0 (10,000) or more", limit)
	}
	return cmp.Or(limit, defaultStatsLimit), nil
}

// CheckLimit refuses a limit of a janitor's call below 1 as an outmill.ErrInvalidConfig.
func CheckLimit(limit int) error {
	if limit < 1 {
		return InvalidConfig("limit is %d: want 1 or more", limit)
	}
	return nil
}

// CheckWaiting refuses a limit of FirstWaiting below 1 or above MaxExamined as an
// outmill.ErrInvalidConfig.
func CheckWaiting(limit int) error {
	if limit < 1 || limit > roles.MaxExamined {
		return InvalidConfig("the limit of FirstWaiting is %d: want 1 to %d", limit, roles.MaxExamined)
	}
	return nil
}

// CheckExtend refuses a lease of 0 or less as an outmill.ErrInvalidConfig.
func CheckExtend(lease time.Duration) error {
	if lease <= 0 {
		return InvalidConfig("Extend: lease is %s: want more than 0", lease)
	}
	return nil
}
