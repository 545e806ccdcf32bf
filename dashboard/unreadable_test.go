package dashboard_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/dashboard"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/memdriver"
)

// damagedSite is a dashboard of a store whose records can be made unreadable.
func damagedSite(t *testing.T, config dashboard.Config) (*site, *memdriver.Database) {
	t.Helper()
	db := memdriver.New()
	store := engine.New(memdriver.Driver{Database: db}, engine.Config{Name: "memory"})
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	s := newSite(t, store, config)
	s.register("billing", "orders")
	return s, db
}

// claimAs claims as a worker with a name.
func (s *site) claimAs(worker string) []*outmill.Record {
	s.Helper()
	found, err := s.Claim(s.Context(), outmill.ClaimRequest{
		Owner: outmill.NewOwnerToken(), Group: "billing", Topics: outmill.Topics{Include: []string{"orders"}},
		Limit: 10, Lease: time.Hour, Worker: worker,
	})
	require.NoError(s, err)
	return found
}

func TestUnreadable(t *testing.T) {
	t.Parallel()

	t.Run("each page names what of a record cannot be read, also where errors are hidden", func(t *testing.T) {
		t.Parallel()
		for _, config := range []dashboard.Config{{}, {ShowErrors: true, ShowPayloads: true}} {
			s, db := damagedSite(t, config)
			r := s.append(&outmill.Record{Topic: "orders", Payload: []byte("secret")})[0]
			require.NoError(t, db.Break(r.ID, memdriver.TenantColumn))
			require.Contains(t, s.page("records?topic=orders").text(), "Cannot be read: column tenant")
			require.Empty(t, s.claimAs("host:1"))
			require.NoError(t, db.Break(r.ID, memdriver.PayloadColumn))
			page := s.page("record?id=" + r.ID.String())
			for _, text := range []string{"What cannot be read", "column tenant", "column payload", "nobody has handled it", "There is no payload that can be read."} {
				require.Contains(t, page.text(), text)
			}
			require.NotContains(t, page.text(), "secret")
			for _, list := range []string{"records?status=dead", "dead"} {
				require.Contains(t, s.page(list).text(), "annot be read", list)
			}
		}
	})

	t.Run("an edit of a record that cannot be read has it delivered after a requeue", func(t *testing.T) {
		t.Parallel()
		s, db := damagedSite(t, dashboard.Config{AllowChanges: true, ShowPayloads: true})
		r := s.append(&outmill.Record{Topic: "orders", Payload: []byte("lost")})[0]
		require.NoError(t, db.Break(r.ID, memdriver.PayloadColumn))
		require.Empty(t, s.claimAs("host:1"))
		require.Contains(t, s.submit(s.page("edit?id="+r.ID.String()), "payload", "mended", "metadata", "{}").text(), "The record is changed.")
		require.NotContains(t, s.page("record?id="+r.ID.String()).text(), "What cannot be read")
		require.Contains(t, s.submit(s.page("requeue?id="+r.ID.String())).text(), "1 record was requeued.")
		found := s.claimAs("host:1")
		require.Len(t, found, 1)
		require.Equal(t, "mended", string(found[0].Payload))
	})

	t.Run("a record that cannot be read is deleted", func(t *testing.T) {
		t.Parallel()
		s, db := damagedSite(t, dashboard.Config{AllowChanges: true})
		r := s.append(&outmill.Record{Topic: "orders"})[0]
		for _, column := range memdriver.Columns() {
			require.NoError(t, db.Break(r.ID, column))
		}
		require.Contains(t, s.submit(s.page("delete?id="+r.ID.String())).text(), "1 record was deleted.")
		_, err := s.Get(t.Context(), r.ID)
		require.ErrorIs(t, err, outmill.ErrNotFound)
	})
}

func TestLastAttempts(t *testing.T) {
	t.Parallel()
	for _, shows := range []bool{false, true} {
		s, _ := damagedSite(t, dashboard.Config{ShowErrors: shows})
		r := s.append(&outmill.Record{Topic: "orders"})[0]
		for _, reason := range []string{"card refused " + hostile, "bank closed"} {
			one := s.claimAs("host <7>")[0]
			require.NoError(t, s.Abandon(t.Context(), []outmill.Settlement{{Lease: one.Lease(), Err: reason}}))
		}
		page := s.page("record?id=" + r.ID.String())
		require.Contains(t, page.text(), "Last attempts")
		require.Contains(t, page.text(), "by host <7>")
		require.NotContains(t, page.body, "<script>alert")
		if !shows {
			require.NotContains(t, page.text(), "card refused")
			require.NotContains(t, page.text(), "bank closed")
			continue
		}
		require.Regexp(t, `(?s)by host <7>: bank closed.*by host <7>: card refused`, page.text())
		s.claimAs("host:8")
		require.Contains(t, s.page("record?id="+r.ID.String()).text(), "host:8", "the worker that has the lease")
	}
}
