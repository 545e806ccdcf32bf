package forwarder

import (
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// hold keeps a topic that the broker does not take out of the claims for a
// while, a longer one each time, until something of it is delivered.
type hold struct {
	until time.Time
	pause *storekit.Waits
	err   error
	// lifted: the topic is being tried again.
	lifted bool
}

// updateHolds needs the lock.
func (fl *flow) updateHolds(r report, now time.Time) {
	for topic := range r.took {
		if r.refused[topic] == nil {
			delete(fl.held, topic)
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
		h = &hold{pause: storekit.NewWaits(firstHold, fl.cfg.MaxErrorBackoff)}
		fl.held[topic] = h
	}
	wait := h.pause.Next()
	h.until, h.err, h.lifted = now.Add(wait), err, false
	fl.log.Error("The broker does not take the topic; it is held, the others go on. Create the topic, grant access to it, or see that all "+
		"its partitions have leaders", err, watermill.LogFields{"topic": topic, "again_in": wait.String()})
	for w := range fl.witnesses {
		w.sawHold(topic, err)
	}
}

// claimable is the configured selection without the topics that are held.
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
