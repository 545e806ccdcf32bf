package engine

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

const (
	// mostTries is how many attempts a history shows, and mostErrorText how many characters of the error of each.
	mostTries     = 10
	mostErrorText = 256
	// leaseEndedError is the error of an attempt that nobody has settled.
	leaseEndedError = "the lease ended, and the worker had stored no outcome"
)

// attempted counts an attempt that ended at a time, and notes it in the history of the row. The row still has its
// lease.
func attempted(r *driver.Row, at driver.Time, reason string) {
	r.Attempts++
	r.Tried = tried(at, r.Worker, reason) + r.Tried
}

// tried is one line of a history: the time, the worker and the error, as JSON, so that no text can end the line.
// The largest is far smaller than driver.HistoryBytes.
func tried(at driver.Time, worker, reason string) string {
	if runes := []rune(reason); len(runes) > mostErrorText {
		reason = string(runes[:mostErrorText])
	}
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	if err := e.Encode([]any{at, worker, reason}); err != nil {
		return ""
	}
	return line.String()
}

// historyOf returns the attempts of a history, the newest first. The driver may have cut the last line.
func historyOf(text string) (list []outmill.Attempt) {
	for len(list) < mostTries {
		line, rest, whole := strings.Cut(text, "\n")
		var at driver.Time
		var a outmill.Attempt
		if !whole || json.Unmarshal([]byte(line), &[]any{&at, &a.Worker, &a.Error}) != nil {
			return list
		}
		a.At = at.Of()
		list, text = append(list, a), rest
	}
	return list
}
