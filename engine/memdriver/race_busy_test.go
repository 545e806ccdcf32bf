package memdriver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

// A claim waits for a line that another one has locked, if it finds nothing in the others: it does not ask again and again.
func TestRace_BusyLine(t *testing.T) {
	t.Parallel()
	const second = "second"
	both := outmill.Topics{Include: []string{topic, second}}
	r := newRace(t)
	ctx := r.Context()
	// Of one process, claims of a line wait for each other before they begin.
	other := r.open()
	r.ok(r.store.RegisterGroup(ctx, outmill.Registration{Group: group, Topics: both}))
	r.append(ctx, rec("a1", ""), rec("a2", ""))
	require.Len(t, r.claim(ctx, c, 1, byTopic), 1)
	r.ok(r.store.Append(ctx, &outmill.Record{Topic: second, MessageID: "b1"}, &outmill.Record{Topic: second, MessageID: "b2"}))

	type result struct {
		records []*outmill.Record
		err     error
	}
	done, ended := make(chan bool), make(chan result, 1)
	held := r.claim(r.at("Apply", 1, func() {
		go func() {
			defer close(done)
			// a2 stays due behind a1, so the claim locks that line first each time.
			records, err := other.Claim(ctx, outmill.ClaimRequest{
				Owner: a, Group: group, Topics: both, Limit: 5, Lease: time.Minute, Order: outmill.OrderTopic,
			})
			ended <- result{records, err}
		}()
		r.reaches(done)
	}), b, 1, byTopic, func(q *outmill.ClaimRequest) { q.Topics = outmill.Topics{Include: []string{second}} })
	require.Equal(t, []string{"b1"}, ids(held))
	got := <-ended
	r.ok(got.err)
	require.Empty(t, got.records, "the first record of each topic is leased")
}
