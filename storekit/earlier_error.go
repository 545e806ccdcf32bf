package storekit

import "github.com/outmill/outmill"

// ErrorIsEarlier reports whether LastError is from before the record was requeued, or released by a Skip, so
// that it does not say why the record waits now. Requeue and Skip keep the text for those who look into the record.
func ErrorIsEarlier(r *outmill.Record) bool {
	return r.LastError != "" && r.Status != outmill.StatusDead && (r.Attempts == 0 || r.LastError == ParkedError)
}
