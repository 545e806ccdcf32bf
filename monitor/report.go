package monitor

import "time"

// Severity says what a problem does to readiness.
type Severity string

const (
	// Failure means that the process cannot use the store: it is not ready.
	Failure Severity = "failure"
	// Warning needs an operator. The process stays ready, because the orchestrator would
	// otherwise stop the replicas that work on the backlog.
	Warning Severity = "warning"
)

// Problem is one finding of a check. It holds no payload and no credential, except in Err.
type Problem struct {
	// Kind names the problem for programs, and does not change. docs/operations.md lists the
	// kinds.
	Kind     string   `json:"kind"`
	Severity Severity `json:"severity"`
	// Store names the store, if the checked one is made of several.
	Store string `json:"store,omitempty"`
	// Group and Topic say where it is, if it is in one place.
	Group string `json:"group,omitempty"`
	Topic string `json:"topic,omitempty"`
	// Subject names the thing, if it is neither: a table, an index, a right, a session.
	Subject string `json:"subject,omitempty"`
	// Since is when it began; zero is unknown.
	Since time.Time `json:"since,omitzero"`
	// Text describes the problem.
	Text string `json:"text"`
	// Remedy says what to do.
	Remedy string `json:"remedy"`
	// Err is the error of the store, if there is one. The handler does not show it.
	Err error `json:"-"`
}

// Report is the result of a check.
type Report struct {
	Store string `json:"store"`
	// Status is "ok", or the worst severity of the problems.
	Status   string    `json:"status"`
	Problems []Problem `json:"problems"`
	// Unchecked has a sentence for each check of Doctor that could not be made.
	Unchecked []string `json:"unchecked,omitempty"`
}

// Ready reports whether the process can use the store.
func (r Report) Ready() bool { return r.Status != string(Failure) }

func statusOf(problems []Problem) string {
	status := "ok"
	for _, p := range problems {
		if p.Severity == Failure {
			return string(Failure)
		}
		status = string(p.Severity)
	}
	return status
}
