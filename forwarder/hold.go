package forwarder

import (
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// hold excludes a topic that the broker refuses from the claims for a time. The time grows
// with each refusal until a message of the topic is delivered.
type hold struct {
	since time.Time
	until time.Time
	pause *storekit.Waits
	err   error
	// lifted says that the forwarder is trying the topic again.
	lifted bool
}

// updateHolds must be called under the lock.
func (fl *flow) updateHolds(r report, now time.Time) {
	for topic := range r.took {
		if r.refused[topic] == nil && fl.held[topic] != nil {
			delete(fl.held, topic)
			fl.problemsChanged()
		}
	}
	for topic, err := range r.refused {
		fl.holdTopic(topic, err, now)
	}
	if len(r.refused) > 0 {
		fl.worker.SetTopics(fl.claimable())
	}
}

func (fl *flow) holdTopic(topic string, err error, now time.Time) {
	h := fl.held[topic]
	if h == nil {
		h = &hold{since: now, pause: storekit.NewWaits(firstHold, fl.cfg.MaxErrorBackoff)}
		fl.held[topic] = h
		fl.problemsChanged()
	}
	wait := h.pause.Next()
	h.until, h.err, h.lifted = now.Add(wait), err, false
	fl.log.Error("The broker refuses the topic; the forwarder holds it and continues with the others. "+
		"Create the topic, grant access to it, or check that all its partitions have leaders", err,
		watermill.LogFields{"topic": topic, "again_in": wait.String()})
	for w := range fl.observers {
		w.sawHold(topic, err)
	}
}

// claimable returns the configured selection without the topics on hold.
func (fl *flow) claimable() outmill.Topics {
	topics := outmill.Topics{Include: fl.cfg.Topics.Include}
	topics.Exclude = append(topics.Exclude, fl.cfg.Topics.Exclude...)
	for topic, h := range fl.held {
		if !h.lifted {
			topics.Exclude = append(topics.Exclude, outmill.Exact(topic))
		}
	}
	return topics
}

func (fl *flow) liftHolds(now time.Time) {
	lifted := false
	for _, h := range fl.held {
		if !h.lifted && !now.Before(h.until) {
			h.lifted, lifted = true, true
		}
	}
	if lifted {
		fl.worker.SetTopics(fl.claimable())
	}
}
