package outmill

import "time"

// Handling is a handler that has run for long. Registration.Handling and WorkerInfo.Handling have those
// of a worker.
type Handling struct {
	// Record is the record that it handles, and Topic its topic.
	Record WorkItemID `json:"record"`
	Topic  string     `json:"topic"`
	// Store names the store of the record, if the worker reads one that is made of several (package
	// tenants); "" otherwise.
	Store string `json:"store,omitempty"`
	// Since is when it began, by the clock of the process.
	Since time.Time `json:"since"`
}
