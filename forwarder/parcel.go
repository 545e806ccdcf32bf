package forwarder

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
)

// errBehind is the fate of a message whose key failed before it.
var errBehind = errors.New("outmill: an earlier message of the key was not delivered")

// parcel is one record on its way.
type parcel struct {
	item  *worker.Item
	topic string
	msg   *message.Message
	// own: the hooks failed, the message never got to the publisher.
	own bool
	// explained: the publisher named this message in a PublishError.
	explained bool
	// filtered: nothing is to be published.
	filtered bool
	err      error
}

// key is what the order hangs on; "" is nothing.
func (p *parcel) key() string {
	rec := p.item.Record
	if rec.Key == "" {
		return ""
	}
	return rec.Topic + "\x00" + rec.Key
}

// prepare runs the user's hooks.
func (f *Forwarder) prepare(items []*worker.Item) []*parcel {
	parcels := make([]*parcel, len(items))
	blocked := map[string]bool{}
	for i, it := range items {
		p := &parcel{item: it, topic: it.Record.Topic}
		parcels[i] = p
		if !f.cfg.Unordered && blocked[p.key()] {
			p.err, p.own = errBehind, true
			continue
		}
		if err := f.dress(p); err != nil {
			p.err, p.own = err, true
			if key := p.key(); key != "" && blocks(f.cfg.KeyPolicy, err) {
				blocked[key] = true
			}
		}
	}
	return parcels
}

// dress makes the message to publish. A hook that panics fails its message.
func (f *Forwarder) dress(p *parcel) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("outmill: forwarder hook panicked: %v", r)
		}
	}()
	rec := p.item.Record
	p.msg = outmill.MessageOf(rec)
	p.msg.SetContext(outmill.WithDelivery(context.Background(), f.queue.Name(), rec, p.item.Clock))
	if f.cfg.Filter != nil && !f.cfg.Filter(rec.Topic, p.msg) {
		p.filtered = true
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
		p.topic = f.cfg.MapTopic(rec.Topic, p.msg)
	}
	return nil
}

// blocks reports whether later messages of a key must wait for one that ended
// with err.
func blocks(policy outmill.KeyPolicy, err error) bool {
	switch {
	case err == nil, policy == outmill.Skip:
		return false
	case outmill.IsPermanent(err):
		return policy == outmill.Park
	}
	return true
}
