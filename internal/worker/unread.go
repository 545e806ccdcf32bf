package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// readWithin is how long ago a registration of a topic shows that a worker reads it. Workers
// register again about once a minute, and monitor waits as long before it misses a group.
const readWithin = 5 * time.Minute

// UnreadPart names the calls of WarnUnread in storekit.CallUpkeep.
const UnreadPart = "look for records that nobody reads"

// WarnUnread warns of topics whose due records no worker seems to read: topics that no group has
// registered for, and topics of this group whose records have been due for longer than patience,
// for which reads returns false and no other worker of the group, of this process or another one,
// has registered within readWithin. The log has the fields store and group.
func WarnUnread(ctx context.Context, queue outmill.Queue, log watermill.LoggerAdapter, group string, reads func(topic string) bool,
	patience time.Duration) error {
	inspector, ok := outmill.As[outmill.Inspector](queue)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	statsOf := inspector.Stats
	if some, ok := outmill.As[roles.Members](queue); ok {
		statsOf = some.StatsOfBusy
	}
	// A limit of 1 is the cheapest, and only OldestDue matters here.
	stats, err := statsOf(ctx, 1)
	if storekit.NoneAnswered(err) {
		return err
	}
	others := &otherReaders{inspector: inspector, group: group}
	for _, t := range stats {
		warn := func(text string) {
			InStore(log, t.Store).With(watermill.LogFields{"group": t.Group}).Error(text, nil,
				watermill.LogFields{"topic": t.Topic, "oldest_due": t.OldestDue.UTC().Format(time.RFC3339)})
		}
		switch {
		case t.OldestDue.IsZero():
		case t.Group == "":
			warn("Warning: records are due that no group has registered for; subscribe to the topic, forward it, or stop publishing to it")
		case t.Group == group && !reads(t.Topic) && time.Since(t.OldestDue) > patience && !others.read(ctx, t.Topic):
			warn("Warning: records of this group are due, and no worker of the group has registered for their topic in the last 5 minutes; " +
				"start one that reads it")
		}
	}
	return errors.Join(err, others.err)
}

// otherReaders knows what the workers of a group have registered for. It asks the store when it
// is first needed.
type otherReaders struct {
	inspector outmill.Inspector
	group     string
	asked     bool
	topics    []outmill.Topics
	err       error
}

// read reports whether a worker has registered for the topic lately. If the store does not say
// so, it returns true, because a warning could be wrong.
func (o *otherReaders) read(ctx context.Context, topic string) bool {
	if !o.asked {
		o.ask(ctx)
	}
	return o.err != nil || slices.ContainsFunc(o.topics, func(t outmill.Topics) bool { return t.Match(topic) })
}

func (o *otherReaders) ask(ctx context.Context) {
	o.asked = true
	groups, err := o.inspector.Groups(ctx)
	o.err = err
	for _, g := range groups {
		if g.Group != o.group {
			continue
		}
		for _, r := range g.Registrations {
			if time.Since(r.SeenAt) < readWithin {
				o.topics = append(o.topics, r.Topics)
			}
		}
	}
}
