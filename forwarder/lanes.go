package forwarder

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// laneSender publishes through publishers that take one message at a time.
type laneSender struct {
	publisher message.Publisher
	lanes     int
	policy    outmill.KeyPolicy
}

// send publishes in several lanes (goroutines). A free lane takes the next key with all of
// its messages, or the next message without a key. So a key is never in two lanes, and no
// key waits behind a slow lane while another lane is free.
func (s *laneSender) send(ctx context.Context, parcels []*parcel) {
	chains := chainsOf(stillUnderway(parcels))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(s.lanes, len(chains)) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(chains) {
					return
				}
				s.sendChain(ctx, chains[i])
			}
		})
	}
	wg.Wait()
}

// chainsOf returns one chain for each key, in the order of the keys' first parcels, and one
// for each parcel without a key.
func chainsOf(parcels []*parcel) [][]*parcel {
	chains := make([][]*parcel, 0, len(parcels))
	places := map[string]int{}
	for _, p := range parcels {
		place, known := places[p.key]
		if known && p.key != "" {
			chains[place] = append(chains[place], p)
			continue
		}
		places[p.key] = len(chains)
		chains = append(chains, []*parcel{p})
	}
	return chains
}

func (s *laneSender) sendChain(ctx context.Context, chain []*parcel) {
	held := false
	for _, p := range chain {
		// The lease may have ended while the lane published other messages.
		if held || ctx.Err() != nil || !p.item.Started() {
			p.end(unsent, nil)
		} else {
			note([]*parcel{p}, guard(func() error { return s.publisher.Publish(p.topic, p.msg) }))
		}
		held = held || p.holdsBack(s.policy)
	}
}
