package outmill

import "time"

// FailingCall is a call that a program repeats by itself, and that has failed each time since its
// last success: a claim, for example, or the renewal of a registration. Registration.Failing and
// WorkerInfo.Failing have those of a worker, and the method FailingCalls of package subscriber,
// forwarder and janitor those of the process. A value can be compared with ==.
type FailingCall struct {
	// Call is the kind of the call: one of storekit.Calls.
	Call string `json:"call"`
	// Part says which of several calls of the kind it is, such as the ack among those that settle.
	// "" is the only one.
	Part string `json:"part,omitempty"`
	// Store names the member of a set of stores whose calls fail; "" is the store itself.
	Store string `json:"store,omitempty"`
	// Since is the begin of the first of these failed calls, by the clock of the process.
	Since time.Time `json:"since"`
	// Times is how many calls have failed since then.
	Times int `json:"times"`
	// Err is the text of the last error, without passwords, cut to 300 characters.
	Err string `json:"error"`
}
