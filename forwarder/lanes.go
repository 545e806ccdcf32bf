package forwarder

import (
	"context"
	"hash/maphash"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// laneSender is for publishers that take one message at a time.
type laneSender struct {
	publisher message.Publisher
	lanes     int
	policy    outmill.KeyPolicy
	seed      maphash.Seed
}

func newLaneSender(publisher message.Publisher, cfg Config) *laneSender {
	return &laneSender{publisher: publisher, lanes: cfg.Lanes, policy: cfg.KeyPolicy, seed: maphash.MakeSeed()}
}

// send deals the parcels out to lanes: those of a key always to the same one,
// the others in turn.
func (s *laneSender) send(ctx context.Context, parcels []*parcel) {
	parcels = stillUnderway(parcels)
	lanes := make([][]*parcel, min(s.lanes, len(parcels)))
	for i, p := range parcels {
		lane := i % len(lanes)
		if p.key != "" {
			lane = int(maphash.String(s.seed, p.key) % uint64(len(lanes)))
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
	keys := newLine(s.policy)
	for _, p := range lane {
		// The lease may have ended while others of the lane were published.
		if ctx.Err() != nil || keys.holds(p) || !p.item.Started() {
			p.end(unsent, nil)
		} else {
			note([]*parcel{p}, guard(func() error { return s.publisher.Publish(p.topic, p.msg) }))
		}
		keys.note(p)
	}
}
