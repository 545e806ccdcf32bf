package forwarder

import (
	"errors"
	"time"

	"github.com/outmill/outmill"
)

// verdict decides how to settle a parcel's item.
type verdict int

const (
	// forget: the result is open, so the record stays leased until its lease ends.
	forget verdict = iota
	ack
	// giveBack releases the record.
	giveBack
	// judge: the message itself is the cause; the retry policy decides.
	judge
	// refused: the broker refuses the topic.
	refused
	// trouble: the broker, or the connection to it, is the cause. No attempt counts.
	trouble
)

// verdict decides from the parcel alone.
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
		// The error does not say which of the messages caused it.
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

// explained reports whether the publisher's error shows that the broker is the cause, not
// the message.
func (p *parcel) explained() bool {
	return p.named || errors.Is(p.err, outmill.ErrBrokerUnavailable)
}

func (fl *flow) classify(err error) (classified error) {
	if fl.cfg.Classify == nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil || classified == nil {
			// A hook that panics or returns nil must not turn a failure into a success.
			classified = err
		}
	}()
	return fl.cfg.Classify(err)
}

// report is the state of the broker, as far as the verdicts on one batch show it.
type report struct {
	// sent counts the messages that the publisher got, delivered those that it accepted.
	sent, delivered int
	// took are the topics with at least one delivered message.
	took map[string]bool
	// refused are the topics that the broker refuses, with the error.
	refused map[string]error
	// away is the error of the batch if no message was delivered; otherwise nil.
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
			// The broker is available but fails for this topic: a partition may have no leader.
			p.verdict = refused
			r.refused[topic] = p.err
		}
	}
	return r
}

// blame finds the messages that cause their failures themselves, where the publisher's
// error names no cause.
func (fl *flow) blame(parcels []*parcel, r report) {
	var unexplained []*parcel
	for _, p := range parcels {
		switch {
		case p.is(delivered):
			fl.failures.forget(p.item.Record.ID)
		case p.verdict == trouble && !p.explained():
			unexplained = append(unexplained, p)
		}
	}
	now := time.Now()
	switch {
	case r.delivered > 0:
		fl.failures.someDelivered(now)
	case r.sent > 0:
		fl.failures.noneDelivered(r.sent)
	}
	if r.delivered == 0 && r.sent > 1 {
		// Several messages failed at once, so the broker is the cause.
		return
	}
	for _, p := range unexplained {
		if fl.failures.add(p.item.Record.ID, now) {
			p.verdict = judge
		}
	}
}
