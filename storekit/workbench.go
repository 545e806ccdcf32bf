package storekit

import "github.com/outmill/outmill"

// SkippedError is the LastError of a dead record that is being skipped, while the records
// behind it come back in steps.
const SkippedError = "skipped: the records behind it are being released"

// CheckDeadLetters returns the query of a DeadLetters with its defaults, and
// refuses one that makes no sense as an outmill.ErrInvalidConfig.
func CheckDeadLetters(query outmill.ListQuery) (outmill.ListQuery, error) {
	query, err := CheckList(query)
	if err == nil && query.Status != "" && query.Status != outmill.StatusDead {
		err = InvalidConfig("DeadLetters: ListQuery.Status is %q: only dead records are listed", query.Status)
	}
	query.Status = outmill.StatusDead
	return query, err
}
