package storekit

import (
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

// EncodeProblems returns the problems of a registration as a text that a store keeps with the
// worker; "" is none. RoutingTable.Infos reads it.
func EncodeProblems(problems map[string]string) string {
	if len(problems) == 0 {
		return ""
	}
	text, err := json.Marshal(problems)
	if err != nil {
		return "" // A map of texts has no value that JSON lacks.
	}
	return string(text)
}

// decodeProblems returns nil for a text that EncodeProblems did not make, because a text that a
// later version wrote must not hide the groups.
func decodeProblems(text string) map[string]string {
	var problems map[string]string
	if text == "" || json.Unmarshal([]byte(text), &problems) != nil {
		return nil
	}
	return problems
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
