package forwarder

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// sender publishes the parcels whose fate is open (underway) and sets their fates. It
// begins no publish after ctx has ended.
type sender interface {
	send(ctx context.Context, parcels []*parcel)
}

func newSender(m mode, publisher message.Publisher, cfg Config) sender {
	if m.Publisher != nil {
		return &batchSender{publisher: m.Publisher, raw: rawOf(m, cfg), policy: cfg.KeyPolicy}
	}
	return &laneSender{publisher: publisher, lanes: cfg.Lanes, policy: cfg.KeyPolicy}
}

// batchSender publishes the parcels in one call.
type batchSender struct {
	publisher storekit.BatchPublisher
	// raw is nil if the publisher gets messages.
	raw    func(ctx context.Context, batch []roles.RawRecord) error
	policy outmill.KeyPolicy
}

// rawOf returns how the publisher publishes records without messages. It returns nil if it cannot, or if hooks need messages.
func rawOf(m mode, cfg Config) func(ctx context.Context, batch []roles.RawRecord) error {
	raw, ok := m.Publisher.(storekit.RawPublisher)
	if !ok || cfg.Filter != nil || cfg.Transform != nil || cfg.MapTopic != nil {
		return nil
	}
	return raw.PublishesRaw(m.Publisher)
}

func (s *batchSender) send(ctx context.Context, parcels []*parcel) {
	parcels = stillUnderway(parcels)
	if s.policy == outmill.KeyPark {
		s.sendInWaves(ctx, parcels)
		return
	}
	s.call(ctx, parcels)
}

// sendInWaves publishes at most one message of each key in a call. With KeyPark, a message
// that can never be delivered parks the later messages of its key; in one call with it, the
// publisher would deliver them.
func (s *batchSender) sendInWaves(ctx context.Context, parcels []*parcel) {
	keys := newLine(s.policy)
	for len(parcels) > 0 {
		var wave, later []*parcel
		inWave := map[string]struct{}{}
		for _, p := range parcels {
			if keys.holds(p) {
				p.end(unsent, nil)
			} else if _, ok := inWave[p.key]; ok && p.key != "" {
				later = append(later, p)
			} else {
				inWave[p.key] = struct{}{}
				wave = append(wave, p)
			}
		}
		s.call(ctx, wave)
		for _, p := range wave {
			keys.note(p)
		}
		parcels = later
	}
}

func (s *batchSender) call(ctx context.Context, parcels []*parcel) {
	if len(parcels) == 0 {
		return
	}
	if ctx.Err() != nil {
		endAll(parcels, unsent, nil)
		return
	}
	note(parcels, guard(func() error { return s.publish(ctx, parcels) }))
}

func (s *batchSender) publish(ctx context.Context, parcels []*parcel) error {
	if s.raw != nil {
		batch := make([]roles.RawRecord, len(parcels))
		for i, p := range parcels {
			batch[i] = p.item.Raw()
		}
		return s.raw(ctx, batch)
	}
	batch := make([]storekit.Outgoing, len(parcels))
	for i, p := range parcels {
		batch[i] = storekit.Outgoing{Topic: p.topic, Message: p.msg}
	}
	return s.publisher.PublishBatch(ctx, batch)
}

func stillUnderway(parcels []*parcel) []*parcel {
	left := make([]*parcel, 0, len(parcels))
	for _, p := range parcels {
		if p.is(underway) {
			left = append(left, p)
		}
	}
	return left
}

func endAll(parcels []*parcel, f fate, err error) {
	for _, p := range parcels {
		p.end(f, err)
	}
}

// note sets the fates of the parcels of a call that returned err.
func note(parcels []*parcel, err error) {
	if err == nil {
		endAll(parcels, delivered, nil)
		return
	}
	var partly *storekit.PublishError
	if !errors.As(err, &partly) || !namesItsFailures(partly, len(parcels)) {
		for _, p := range parcels {
			p.shared = len(parcels) > 1
			p.end(failed, err)
		}
		return
	}
	for _, f := range partly.Failed {
		p := parcels[f.Index]
		p.named = true
		if p.err = f.Err; p.err == nil {
			p.err = errors.New("outmill: the publisher reports a failed message without an error")
		}
	}
	for _, p := range parcels {
		if p.named {
			p.end(failed, p.err)
		} else {
			p.end(delivered, nil)
		}
	}
}

// namesItsFailures reports whether the error lists the messages that failed. If it lists
// none, or one that was not in the call, the forwarder cannot know which messages were
// delivered.
func namesItsFailures(err *storekit.PublishError, messages int) bool {
	for _, f := range err.Failed {
		if f.Index < 0 || f.Index >= messages {
			return false
		}
	}
	return len(err.Failed) > 0
}

// guard turns a panic of the user's publisher into an error.
func guard(publish func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("outmill: the publisher panicked: %v", r)
		}
	}()
	return publish()
}
