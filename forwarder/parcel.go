package forwarder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/storekit"
)

// fate is the result of publishing a parcel.
type fate int32

const (
	// underway: the result is open.
	underway fate = iota
	// filtered: the filter refused the message, so it is not published.
	filtered
	// unfit: a hook failed, so the publisher never got the message.
	unfit
	// unsent: the publisher never got the message, for a reason outside the message: an
	// earlier message of its key failed, the time ran out, the lease was lost, or the broker
	// is unavailable.
	unsent
	// delivered: the publisher accepted the message.
	delivered
	// failed: the publisher refused the message, or its result is unknown.
	failed
)

// parcel is one record that is being forwarded.
type parcel struct {
	item  *worker.Item
	topic string
	// msg is nil if the record is published without one.
	msg *message.Message
	// key orders the parcels; "" is no order.
	key string

	// fate is written last, so that a goroutine that has read it may read err too while
	// other parcels of the batch are still in flight.
	fate atomic.Int32
	err  error
	// named says that the publisher's error lists this message; otherwise the whole call
	// failed.
	named bool
	// shared says that the failed call had other messages too.
	shared bool

	// verdict is the decision of the flow.
	verdict verdict
}

func wrap(items []*worker.Item) []*parcel {
	parcels := make([]*parcel, len(items))
	all := make([]parcel, len(items))
	for i, it := range items {
		all[i].item, all[i].topic, all[i].key = it, it.Record.Topic, it.Key()
		parcels[i] = &all[i]
	}
	return parcels
}

func (p *parcel) end(f fate, err error) {
	if err != nil && outmill.IsNil(err) {
		// A typed nil is an error without a text, and its methods may panic.
		err = fmt.Errorf("outmill: an error that is a nil %T", err)
	}
	p.err = err
	p.fate.Store(int32(f))
}

func (p *parcel) is(f fate) bool { return fate(p.fate.Load()) == f }

// holdsBack reports whether later messages of the key must not be published
// now.
func (p *parcel) holdsBack(policy outmill.KeyPolicy) bool {
	switch fate(p.fate.Load()) {
	case unsent:
		return true
	case unfit, failed:
		if outmill.IsPermanent(p.err) {
			return policy == outmill.KeyPark
		}
		return policy != outmill.KeySkip
	case underway, filtered, delivered:
	}
	return false
}

// line records which keys are held back, while a loop visits the parcels in their order.
type line struct {
	policy outmill.KeyPolicy
	held   map[string]struct{}
}

func newLine(policy outmill.KeyPolicy) *line {
	return &line{policy: policy, held: map[string]struct{}{}}
}

func (l *line) holds(p *parcel) bool {
	_, held := l.held[p.key]
	return held
}

func (l *line) note(p *parcel) {
	if p.key != "" && p.holdsBack(l.policy) {
		l.held[p.key] = struct{}{}
	}
}

// prepare runs the user's hooks. After ctx has ended, it leaves the other parcels unsent.
func (f *Forwarder) prepare(ctx context.Context, parcels []*parcel) {
	keys := newLine(f.cfg.KeyPolicy)
	for i, p := range stillUnderway(parcels) {
		if i > 0 && ctx.Err() != nil || keys.holds(p) || !p.item.Started() {
			p.end(unsent, nil)
		} else if err := f.render(p); err != nil {
			p.end(unfit, err)
		}
		keys.note(p)
	}
}

// render makes the message to publish. A hook that panics fails its message.
func (f *Forwarder) render(p *parcel) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("outmill: forwarder hook panicked: %v", r)
		}
	}()
	if f.raw != nil {
		return nil
	}
	rec := p.item.Record
	p.msg = f.messageOf(rec)
	handling := storekit.NewHandling(f.queue.Name(), rec, p.item.Clock)
	handling.Start()
	p.msg.SetContext(handling.Context(context.Background()))
	if f.cfg.Filter != nil && !f.cfg.Filter(rec.Topic, p.msg) {
		p.end(filtered, nil)
		return nil
	}
	if f.cfg.Transform != nil {
		if p.msg, err = f.cfg.Transform(rec.Topic, p.msg); err != nil {
			return err
		}
		if p.msg == nil {
			return outmill.Permanent(errors.New("outmill: forwarder.Config.Transform returned no message; use Filter to leave messages out"))
		}
	}
	if f.cfg.MapTopic != nil {
		if p.topic = f.cfg.MapTopic(rec.Topic, p.msg); p.topic == "" {
			return outmill.Permanent(errors.New("outmill: forwarder.Config.MapTopic returned no topic; use Filter to leave messages out"))
		}
	}
	return nil
}

// messageOf gives the hooks a copy of the metadata if OnDead may get the record later, so
// that a hook cannot change the record.
func (f *Forwarder) messageOf(rec *outmill.Record) *message.Message {
	if f.cfg.OnDead == nil {
		return storekit.MessageOf(rec)
	}
	lent := *rec
	lent.Metadata = maps.Clone(rec.Metadata)
	return storekit.MessageOf(&lent)
}
