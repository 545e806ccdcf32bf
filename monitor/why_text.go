package monitor

import (
	"fmt"
	"strconv"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// errorLength is the number of characters of an error that an explanation shows.
const errorLength = 500

// quote quotes text of users and escapes its control characters.
func quote(text string) string {
	if runes := []rune(text); len(runes) > errorLength {
		text = string(runes[:errorLength]) + "…"
	}
	return strconv.Quote(text)
}

func (w why) lastError(r *outmill.Record) string {
	if r.LastError == "" {
		return "No error text was kept."
	}
	if w.hideErrors {
		return "Its error text is hidden here."
	}
	if storekit.ErrorIsEarlier(r) {
		return "Its last error is from before a requeue or a skip brought it back: " + quote(r.LastError) + "."
	}
	return "Last error: " + quote(r.LastError) + "."
}

// at shows a time, and how far away it is.
func (w why) at(t time.Time) string {
	if t.IsZero() {
		return "an unknown time"
	}
	text := t.UTC().Format(time.RFC3339)
	if d := t.Sub(w.now); d > 0 {
		return text + " (in " + short(d) + ")"
	}
	return text + " (" + short(w.now.Sub(t)) + " ago)"
}

func short(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// times prints "1 claim" or "2 claims".
func times(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
