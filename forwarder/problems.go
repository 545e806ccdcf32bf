package forwarder

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outmill/outmill/storekit"
)

// reportEvery is the shortest time between two registrations that report changed problems, so
// that a broker that comes and goes does not burden the database.
const reportEvery = time.Second

// problems describes the open breaker, under the topic "", and the topics on hold, for the
// registration of the group. They are in the store, so that an operator can ask why a record is
// not forwarded. If there are too many topics, the first by name are reported.
func (fl *flow) problems() map[string]string {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	problems := map[string]string{}
	if fl.state != closed {
		problems[""] = problemText("the broker has accepted no message since ", fl.awaySince, fl.away)
	}
	for _, topic := range slices.Sorted(maps.Keys(fl.held)) {
		if len(problems) == storekit.MaxProblems {
			break
		}
		h := fl.held[topic]
		problems[topic] = problemText("the broker has refused the topic since ", h.since, h.err)
	}
	return problems
}

// problemText leaves out of the error what a store cannot keep.
func problemText(what string, since time.Time, err error) string {
	text := what + since.UTC().Format(time.RFC3339) + ": " + strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "\uFFFD"), "\x00", "\uFFFD")
	// A character of UTF-8 takes at most one unit of UTF-16 for each of its bytes.
	for len(text) > storekit.MaxProblemText {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}

// problemsChanged makes reportProblems register again.
func (fl *flow) problemsChanged() {
	select {
	case fl.changed <- struct{}{}:
	default:
	}
}

// reportProblems registers the group when the problems have changed, until ctx ends. If a
// registration fails, the next round of keepUp reports them.
func (f *Forwarder) reportProblems(ctx context.Context, fl *flow) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-fl.changed:
		}
		if err := f.register(ctx, fl); err != nil && ctx.Err() == nil {
			f.log.Error("The forwarder could not report its problems to the store, will try again with the next registration", err, nil)
		}
		timer := time.NewTimer(reportEvery)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}
