package storekit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/outmill/outmill"
)

const (
	// MaxProblems is the most topics that a registration reports problems of.
	MaxProblems = 20
	// MaxProblemText is the most characters of the text of a problem.
	MaxProblemText = 500
)

// workerReport is what a worker reports with its registration.
type workerReport struct {
	Problems map[string]string     `json:"problems,omitempty"`
	Failing  []outmill.FailingCall `json:"failing,omitempty"`
	Handling []outmill.Handling    `json:"handling,omitempty"`
	Stopped  bool                  `json:"stopped,omitempty"`
	Reads    []outmill.Reading     `json:"reads,omitempty"`
}

// EncodeProblems returns Problems, Failing, Handling, Stopped and Reads of a registration as a text that a store keeps
// with the worker; "" is none. RoutingTable.Infos reads it.
func EncodeProblems(reg outmill.Registration) string {
	if len(reg.Problems) == 0 && len(reg.Failing) == 0 && len(reg.Handling) == 0 && !reg.Stopped && len(reg.Reads) == 0 {
		return ""
	}
	text, err := json.Marshal(workerReport{reg.Problems, reg.Failing, reg.Handling, reg.Stopped, reg.Reads})
	if err != nil {
		return "" // The year of each time was checked, and JSON has all other values.
	}
	return string(text)
}

// decodeProblems returns nothing for a text that EncodeProblems did not make, because a text that a
// later version wrote must not hide the groups.
func decodeProblems(text string) (report workerReport) {
	if text == "" || json.Unmarshal([]byte(text), &report) != nil {
		return workerReport{}
	}
	return report
}

func checkFailing(calls []outmill.FailingCall) error {
	var errs []error
	if len(calls) > MaxFailing {
		errs = append(errs, fmt.Errorf("%w: Registration.Failing has %d calls: want at most %d",
			outmill.ErrInvalidConfig, len(calls), MaxFailing))
	}
	for _, call := range calls {
		reason := checkTime(call.Since)
		for _, text := range []string{call.Call, call.Part, call.Store, call.Err} {
			reason = cmp.Or(reason, checkText(text, MaxProblemText))
		}
		if call.Call == "" {
			reason = "has no Call: want one of storekit.Calls"
		}
		if reason != "" {
			errs = append(errs, &outmill.InvalidRecordError{Index: -1, Field: "failing call", Reason: reason})
		}
	}
	return errors.Join(errs...)
}

func checkProblems(problems map[string]string) error {
	var errs []error
	if len(problems) > MaxProblems {
		errs = append(errs, fmt.Errorf("%w: Registration.Problems has %d topics: want at most %d",
			outmill.ErrInvalidConfig, len(problems), MaxProblems))
	}
	for topic, text := range problems {
		if topic != "" {
			errs = append(errs, CheckTopic(topic))
		}
		reason := checkText(text, MaxProblemText)
		if text == "" {
			reason = fmt.Sprintf("is empty: want 1 to %d characters", MaxProblemText)
		}
		if reason != "" {
			errs = append(errs, &outmill.InvalidRecordError{Index: -1, Field: "problem", Reason: reason})
		}
	}
	return errors.Join(errs...)
}
