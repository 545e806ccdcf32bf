package forwarder

import (
	"errors"
	"time"

	"github.com/outmill/outmill"
)

// verdict is how a parcel's item is to be settled.
type verdict int

const (
	// forget: nobody knows yet what becomes of it; it is left to its lease.
	forget verdict = iota
	ack
	// giveBack: as if it had not been claimed.
	giveBack
	// judge: the message itself failed; the retry policy decides.
	judge
	// refused: the broker does not take the topic.
	refused
	// trouble: the broker, or the way to it. No attempt is counted.
	trouble
)

// verdict looks at the parcel alone.
func (fl *flow) verdict(p *parcel) verdict {
	switch fate(p.fate.Load()) {
	case filtered, delivered:
		return ack
	case unsent:
		return giveBack
	case unfit:
		return judge
	case failed:
		return fl.verdictOf(p)
	case underway:
	}
	return forget
}

func (fl *flow) verdictOf(p *parcel) verdict {
	if p.shared {
		// It says nothing about each of them.
		return trouble
	}
	p.err = fl.classify(p.err)
	_, retryAfter := outmill.RetryAfterDelay(p.err)
	_, snooze := outmill.SnoozeDelay(p.err)
	switch {
	case outmill.IsPermanent(p.err) || retryAfter || snooze:
		return judge
	case errors.Is(p.err, outmill.ErrTopicUnavailable):
		return refused
	}
	return trouble
}

// explained reports whether the publisher left no doubt that the broker is to
// blame, and not the message.
func (p *parcel) explained() bool {
	return p.named || errors.Is(p.err, outmill.ErrBrokerUnavailable)
}

func (fl *flow) classify(err error) (classified error) {
	if fl.cfg.Classify == nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil || classified == nil {
			// A message that failed stays one that failed.
			classified = err
		}
	}()
	return fl.cfg.Classify(err)
}

// report is what the verdicts on one batch tell of the broker.
type report struct {
	// sent counts the messages that the publisher saw, delivered those that it
	// took.
	sent, delivered int
	// took are the topics of which something was delivered.
	took map[string]bool
	// refused are the topics of which nothing is taken, and why.
	refused map[string]error
	// away is why nothing at all is taken; nil where something was.
	away error
}

// assess sets the verdict on each parcel.
func (fl *flow) assess(parcels []*parcel) report {
	r := report{took: map[string]bool{}, refused: map[string]error{}}
	for _, p := range parcels {
		p.verdict = fl.verdict(p)
		if p.is(delivered) || p.is(failed) {
			r.sent++
		}
		if p.is(delivered) {
			r.delivered++
			r.took[p.item.Record.Topic] = true
		}
	}
	fl.blame(parcels, r)
	for _, p := range parcels {
		topic := p.item.Record.Topic
		switch {
		case p.verdict == refused:
			r.refused[topic] = p.err
		case p.verdict == trouble && r.delivered == 0:
			r.away = p.err
		case p.verdict == trouble && p.explained() && !r.took[topic]:
			// The broker is there, but has trouble with this topic: a partition without
			// a leader.
			p.verdict = refused
			r.refused[topic] = p.err
		}
	}
	return r
}

// blame finds the messages that are to blame themselves, where the publisher
// does not say.
func (fl *flow) blame(parcels []*parcel, r report) {
	var doubtful []*parcel
	for _, p := range parcels {
		switch {
		case p.is(delivered):
			fl.doubts.acquit(p.item.Record.ID)
		case p.verdict == trouble && !p.explained():
			doubtful = append(doubtful, p)
		}
	}
	now := time.Now()
	switch {
	case r.delivered > 0:
		fl.doubts.gotThrough(now)
	case r.sent > 0:
		fl.doubts.tookNothing(r.sent)
	}
	if r.delivered == 0 && r.sent > 1 {
		// So many at a time: it is the broker.
		return
	}
	for _, p := range doubtful {
		if fl.doubts.accuse(p.item.Record.ID, now) {
			p.verdict = judge
		}
	}
}
