package forwarder

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// sender publishes parcels and notes in each what went wrong with it. It skips
// those that have an error already or are filtered.
type sender interface {
	send(ctx context.Context, parcels []*parcel)
}

func newSender(publisher message.Publisher, cfg Config) sender {
	if batching, ok := publisher.(outmill.BatchPublisher); ok {
		return &batchSender{batching}
	}
	return &laneSender{publisher: publisher, lanes: cfg.Lanes, ordered: !cfg.Unordered, policy: cfg.KeyPolicy, seed: maphash.MakeSeed()}
}

// batchSender hands all parcels over in one call.
type batchSender struct{ publisher outmill.BatchPublisher }

func (s *batchSender) send(ctx context.Context, parcels []*parcel) {
	batch := make([]outmill.Outgoing, 0, len(parcels))
	sent := make([]*parcel, 0, len(parcels))
	for _, p := range parcels {
		if p.err == nil && !p.filtered {
			batch = append(batch, outmill.Outgoing{Topic: p.topic, Message: p.msg})
			sent = append(sent, p)
		}
	}
	if len(batch) == 0 {
		return
	}
	note(sent, guard(func() error { return s.publisher.PublishBatch(ctx, batch) }))
}

// note spreads the error of a call over its messages.
func note(sent []*parcel, err error) {
	if err == nil {
		return
	}
	var failed *outmill.PublishError
	if !errors.As(err, &failed) {
		for _, p := range sent {
			p.err = err
		}
		return
	}
	for _, f := range failed.Failed {
		if f.Index >= 0 && f.Index < len(sent) {
			sent[f.Index].err = f.Err
			sent[f.Index].explained = true
		}
	}
}

// laneSender is for publishers that take one message at a time.
type laneSender struct {
	publisher message.Publisher
	lanes     int
	ordered   bool
	policy    outmill.KeyPolicy
	seed      maphash.Seed
}

// send deals the parcels out to lanes: those of a key always to the same one,
// the others in turn.
func (s *laneSender) send(ctx context.Context, parcels []*parcel) {
	lanes := make([][]*parcel, min(s.lanes, len(parcels)))
	for i, p := range parcels {
		if p.err != nil || p.filtered {
			continue
		}
		lane := i % len(lanes)
		if key := p.key(); s.ordered && key != "" {
			lane = int(maphash.String(s.seed, key) % uint64(len(lanes)))
		}
		lanes[lane] = append(lanes[lane], p)
	}
	var wg sync.WaitGroup
	for _, lane := range lanes {
		if len(lane) > 0 {
			wg.Go(func() { s.sendLane(ctx, lane) })
		}
	}
	wg.Wait()
}

func (s *laneSender) sendLane(ctx context.Context, lane []*parcel) {
	blocked := map[string]bool{}
	for _, p := range lane {
		key := p.key()
		switch {
		case ctx.Err() != nil:
			p.err = fmt.Errorf("%w: %w", outmill.ErrBrokerUnavailable, ctx.Err())
		case s.ordered && blocked[key]:
			p.err = errBehind
		default:
			err := guard(func() error { return s.publisher.Publish(p.topic, p.msg) })
			note([]*parcel{p}, err)
			if key != "" && blocks(s.policy, p.err) {
				blocked[key] = true
			}
		}
	}
}

// guard makes an error of a panic: it is the user's publisher.
func guard(publish func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("outmill: the publisher panicked: %v", r)
		}
	}()
	return publish()
}
