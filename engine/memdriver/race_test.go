package memdriver_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/memdriver"
	"github.com/outmill/outmill/storetest"
)

const (
	group = "readers"
	topic = "orders"
)

// race is a test of one interleaving.
type race struct {
	*testing.T
	interleaved
	store store
}

func newRace(t *testing.T) *race {
	h := newInterleaved(t, storetest.Options{}, 0)
	return &race{t, h, h.open()}
}

// at runs fn once, before the nth call of this name in the transactions of the returned context.
func (r *race) at(call string, nth int, fn func()) context.Context {
	n := 0
	return memdriver.WithHook(r.Context(), func(c string) {
		if c == call {
			if n++; n == nth {
				fn()
			}
		}
	})
}

// reaches waits until something is closed, or a transaction waits for another one.
func (r *race) reaches(closed <-chan bool) {
	r.Helper()
	require.Eventually(r.T, func() bool {
		select {
		case <-closed:
			return true
		default:
			return r.world.Waiting()
		}
	}, time.Minute, time.Millisecond)
}

func (r *race) ok(err error) {
	r.Helper()
	require.NoError(r.T, err)
}

func (r *race) register(ctx context.Context) {
	r.ok(r.store.RegisterGroup(ctx, outmill.Registration{Group: group, Topics: outmill.Topics{Include: []string{topic}}}))
}

func (r *race) append(ctx context.Context, list ...*outmill.Record) {
	r.Helper()
	for _, one := range list {
		one.Topic = topic
	}
	r.ok(r.store.Append(ctx, list...))
}

func rec(id, key string) *outmill.Record { return &outmill.Record{MessageID: id, Key: key} }

type change func(*outmill.ClaimRequest)

func (r *race) claim(ctx context.Context, owner outmill.OwnerToken, limit int, changes ...change) []*outmill.Record {
	r.Helper()
	req := outmill.ClaimRequest{
		Owner: owner, Group: group, Topics: outmill.Topics{Include: []string{topic}}, Limit: limit, Lease: time.Minute, Order: outmill.OrderKey,
	}
	for _, c := range changes {
		c(&req)
	}
	records, err := r.store.Claim(ctx, req)
	r.ok(err)
	return records
}

func byTopic(q *outmill.ClaimRequest)  { q.Order = outmill.OrderTopic }
func anyOrder(q *outmill.ClaimRequest) { q.Order = outmill.OrderNone }
func parks(q *outmill.ClaimRequest)    { q.KeyPolicy = outmill.KeyPark }

func ids(records []*outmill.Record) (list []string) {
	for _, r := range records {
		list = append(list, r.MessageID)
	}
	return list
}

func leases(records ...*outmill.Record) (list []outmill.Lease) {
	for _, r := range records {
		list = append(list, outmill.Lease{ID: r.ID, Owner: r.Owner, Claim: r.Claims})
	}
	return list
}

var a, b, c = outmill.NewOwnerToken(), outmill.NewOwnerToken(), outmill.NewOwnerToken()
