package dashboard_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
)

// shopSite is a site whose store has some of everything.
type shopSite struct {
	*site
	dead outmill.WorkItemID
	join outmill.JoinID
}

func fill(s *site, store *sqlite.Store) shopSite {
	s.Helper()
	s.register("billing", "orders.placed", "orders.cancelled")
	s.register("mail", "orders.placed")
	s.register("warehouse-of-the-north-with-a-long-name", "shipments.requested", "returns.*")
	for i := range 24 {
		s.append(&outmill.Record{
			Topic: "orders.placed", Key: fmt.Sprintf("customer %d", i%7), MessageID: fmt.Sprintf("order-%d", 4700+i),
			CorrelationID: "checkout-81", TenantID: "acme", Payload: []byte(`{"order":4711,"lines":[{"sku":"A-1","n":2}]}`),
			Metadata: map[string]string{"name": "order.placed", "version": "3"},
		})
	}
	dead := s.kill("billing", "orders.placed", "charge the card: POST https://bank.example/charges: 402 Payment Required: card was refused")
	for i := range 5 {
		s.append(&outmill.Record{Topic: "returns.requested", Key: strings.Repeat("k", 200), MessageID: fmt.Sprintf("return-%d", i)})
		s.append(&outmill.Record{Topic: "shipments.requested", MessageID: fmt.Sprintf("shipment-%d", i), Delay: time.Hour})
		s.append(&outmill.Record{Topic: "audit", MessageID: fmt.Sprintf("audit-%d", i)})
	}
	join := &roles.Join{ExpectedSteps: 3, GroupingKey: "customer 7", Timeout: time.Hour, Metadata: map[string]string{"order": "4711"}}
	require.NoError(s, store.StartJoin(s.Context(), join))
	s.append(&outmill.Record{Topic: "shipments.requested", Joins: []outmill.JoinID{join.ID}})
	require.NoError(s, store.Pause(s.Context(), roles.PauseScope{Topic: "shipments.requested"}, "ann@example.com", "the warehouse is down"))
	type state struct{ Order, Step string }
	require.NoError(s, store.InsertSaga(s.Context(), &roles.Saga{Type: "order", Correlation: "4711"}, &state{"4711", "paid"},
		roles.SagaOptions{}))
	return shopSite{s, dead[0].ID, join.ID}
}

// pages are the addresses of one page of each kind.
func (s shopSite) pages() []string {
	return []string{
		"", "topic?topic=orders.placed&group=billing", "records?status=dead", "record?id=" + s.dead.String(), "find?id=order-4701",
		"find", "dead", "audit", "edit?id=" + s.dead.String(), "skip?id=" + s.dead.String(),
		"groups", "pauses", "joins", "join?id=" + s.join.String(), "sagas?kind=order&correlation=4711", "stores",
		"requeue?id=" + s.dead.String(), "delete?status=dead", "pause?topic=orders.placed", "resume?topic=shipments.requested",
		"drop-group?group=billing", "cancel-join?id=" + s.join.String(), "nothing",
	}
}

// past lets the dashboard look at the store while so much time passes by its clock, in which the
// number of waiting records changes.
func (s shopSite) past(d time.Duration) {
	s.Helper()
	const step = 5 * time.Second
	steps := int(d / step)
	for i := range steps {
		at := time.Now().Add(-d + time.Duration(i)*step)
		s.board.SetClock(func() time.Time { return at })
		if wave := i % 40; wave < 20 {
			s.append(&outmill.Record{Topic: "returns.requested"}, &outmill.Record{Topic: "orders.placed"}, &outmill.Record{Topic: "orders.placed"})
		} else {
			s.handle("mail", "orders.placed", 2)
			s.handle("warehouse-of-the-north-with-a-long-name", "returns.requested", 1)
		}
		s.page("")
	}
	s.board.SetClock(time.Now)
}

// handle acks records.
func (s shopSite) handle(group, topic string, n int) {
	s.Helper()
	records, err := s.Claim(s.Context(), outmill.ClaimRequest{
		Owner: outmill.NewOwnerToken(), Group: group, Topics: outmill.Topics{Include: []string{topic}}, Limit: n, Lease: time.Minute,
	})
	require.NoError(s, err)
	leases := make([]outmill.Lease, len(records))
	for i, r := range records {
		leases[i] = r.Lease()
	}
	require.NoError(s, s.Ack(s.Context(), "host:1", leases))
}
