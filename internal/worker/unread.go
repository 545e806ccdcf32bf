package worker

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// WarnUnread warns of topics whose due records no worker seems to read: topics that no
// group has registered for, and topics of this group for which reads returns false and
// whose records have been due for longer than patience. The log has the fields store and group.
func WarnUnread(ctx context.Context, queue outmill.Queue, log watermill.LoggerAdapter, group string, reads func(topic string) bool,
	patience time.Duration) error {
	inspector, ok := outmill.As[outmill.Inspector](queue)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	statsOf := inspector.Stats
	if some, ok := outmill.As[storekit.BusyStats](queue); ok {
		statsOf = some.StatsOfBusy
	}
	// A limit of 1 is the cheapest, and only OldestDue matters here.
	stats, err := statsOf(ctx, 1)
	if storekit.NoneAnswered(err) {
		return err
	}
	for _, t := range stats {
		warn := func(text string) {
			InStore(log, t.Store).With(watermill.LogFields{"group": t.Group}).Error(text, nil,
				watermill.LogFields{"topic": t.Topic, "oldest_due": t.OldestDue.UTC().Format(time.RFC3339)})
		}
		switch {
		case t.OldestDue.IsZero():
		case t.Group == "":
			warn("Warning: records are due that no group has registered for; subscribe to the topic, forward it, or stop publishing to it")
		case t.Group == group && !reads(t.Topic) && time.Since(t.OldestDue) > patience:
			warn("Warning: records of this group are due and this process does not read their topic; make sure that another one does")
		}
	}
	return err
}
