package storekit

import "github.com/outmill/outmill"

const defaultChangeLimit = 1000

// CheckRequeueWhere returns the query of a RequeueWhere with its defaults, and
// refuses one that makes no sense as an outmill.ErrInvalidConfig.
func CheckRequeueWhere(query outmill.ListQuery) (outmill.ListQuery, error) {
	query, err := checkChange(query)
	if err == nil && query.Status != "" && query.Status != outmill.StatusDead {
		err = InvalidConfig("RequeueWhere: ListQuery.Status is %q: only dead records are requeued", query.Status)
	}
	query.Status = outmill.StatusDead
	return query, err
}

// CheckDeleteWhere returns the query of a DeleteWhere with its defaults, and
// refuses one that makes no sense, or has no filter, as an outmill.ErrInvalidConfig.
func CheckDeleteWhere(query outmill.ListQuery) (outmill.ListQuery, error) {
	query, err := checkChange(query)
	if err == nil && (outmill.ListQuery{After: query.After, Limit: query.Limit}) == query {
		err = InvalidConfig("DeleteWhere: the query has no filter and would delete every record: set a field of it, such as Status or Topic")
	}
	return query, err
}

func checkChange(query outmill.ListQuery) (outmill.ListQuery, error) {
	if query.Limit == 0 {
		query.Limit = defaultChangeLimit
	}
	return CheckList(query)
}
