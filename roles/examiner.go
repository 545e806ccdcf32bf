package roles

import (
	"context"
	"fmt"
	"time"
)

// Examiner is a role of a store that looks for faults of its database: a part of the schema or
// a right that is missing, a session that slows others down, a clock that differs.
// monitor.Doctor asks it.
type Examiner interface {
	// Examine reads the catalog, the settings and the sessions of the database. Its cost does
	// not grow with the number of records, and it changes nothing. It reports what it cannot
	// see in Examination.Unchecked. It returns an error if the database does not answer.
	Examine(ctx context.Context, request ExamineRequest) (Examination, error)
}

// Task is work that needs rights of its own.
type Task string

const (
	// TaskPublish is the work of a program that publishes.
	TaskPublish Task = "publish"
	// TaskRead is the work of a subscriber or forwarder, with its janitor.
	TaskRead Task = "read"
)

// ExamineRequest says what an Examiner looks for. A store ignores the limits of what its engine
// does not have.
type ExamineRequest struct {
	// Tasks are those for which the store's user must have the rights.
	Tasks []Task
	// OpenTransaction is how long a transaction may be open.
	OpenTransaction time.Duration
	// LockWait is how long a session may wait for a lock on a table of the store.
	LockWait time.Duration
	// ClockDifference is how much the clocks of the database and of this machine may differ.
	ClockDifference time.Duration
	// QueueUsage is how full PostgreSQL's queue of notifications may be, from 0 to 1.
	QueueUsage float64
	// RetainedWAL is how many bytes of PostgreSQL's write-ahead log a replication slot may keep.
	RetainedWAL int64
}

// Examination is the answer of an Examiner.
type Examination struct {
	Findings []Finding
	// Unchecked has a sentence for each check that could not be made. It names the check and
	// what is missing for it.
	Unchecked []string
}

// Finding is a fault of a database. Its texts have no payload and no credential.
type Finding struct {
	// Code names the kind of fault for programs, and does not change. docs/operations.md lists
	// the codes.
	Code string
	// Failure says that work fails. Otherwise the fault costs time or space, or becomes a
	// failure later.
	Failure bool
	// Subject names the thing: a table, an index, a session, a right.
	Subject string
	// Text describes the fault, and Remedy says what to do.
	Text, Remedy string
	// Since is when it began; zero is unknown.
	Since time.Time
	// Store names the store, if the Examiner is made of several; "" otherwise.
	Store string
}

// Add adds the findings.
func (e *Examination) Add(findings ...Finding) { e.Findings = append(e.Findings, findings...) }

// Skip adds a sentence about a check that could not be made.
func (e *Examination) Skip(format string, args ...any) {
	e.Unchecked = append(e.Unchecked, fmt.Sprintf(format, args...))
}

// AddClock adds a finding if the clock of the database differs too much from that of this
// machine. now is the time of the database, which answered a question that was asked at asked
// and answered at answered. The time of the question and the answer does not count as a
// difference.
func (e *Examination) AddClock(request ExamineRequest, asked, now, answered time.Time) {
	var difference time.Duration
	direction := "ahead of"
	switch {
	case now.Before(asked):
		difference, direction = asked.Sub(now), "behind"
	case now.After(answered):
		difference = now.Sub(answered)
	}
	if difference <= request.ClockDifference {
		return
	}
	e.Add(Finding{
		Code: "clock_differs", Subject: "clock",
		Text: fmt.Sprintf("The clock of the database is %v %s that of this machine.", difference.Round(time.Millisecond), direction),
		Remedy: "Synchronise both clocks (NTP). Outmill uses the clock of the database, so delays that this machine " +
			"computes as a time, and ages in metrics, are wrong by the difference.",
	})
}
