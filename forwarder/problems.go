package forwarder

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/outmill/outmill/storekit"
)

// reportEvery is the shortest time between two registrations that report changed problems, so
// that a broker that comes and goes does not burden the database.
const reportEvery = time.Second

// problems describes the open breaker, under the topic "", the topics on hold, and records that come
// again and again without an attempt, for the registration of the group. They are in the store, so that an operator can ask why a record is
// not forwarded. If there are too many topics, the first by name are reported.
func (fl *flow) problems() map[string]string {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	problems := map[string]string{}
	switch {
	case fl.state != closed && !fl.answered:
		problems[""] = problemText("the destination has not answered since ", fl.awaySince, fl.away)
	case fl.state != closed:
		problems[""] = problemText("the broker has accepted no message since ", fl.awaySince, fl.away)
	}
	for _, topic := range slices.Sorted(maps.Keys(fl.held)) {
		if len(problems) == storekit.MaxProblems {
			break
		}
		h := fl.held[topic]
		problems[topic] = problemText("the broker has refused the topic since ", h.since, h.err)
	}
	if fl.state != closed {
		return problems
	}
	// A record may be released for as long as the broker refuses it, which the problems above say.
	for topic, text := range fl.worker.Repeats().Problems() {
		if _, known := problems[topic]; !known && len(problems) < storekit.MaxProblems {
			problems[topic] = text
		}
	}
	return problems
}

func problemText(what string, since time.Time, err error) string {
	return storekit.ProblemText(what + since.UTC().Format(time.RFC3339) + ": " + err.Error())
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
