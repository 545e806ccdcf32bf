package dashboard_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/dashboard"
	"github.com/outmill/outmill/storetest/memstore"
)

func TestThroughput(t *testing.T) {
	t.Parallel()

	// minute lets a minute pass by the dashboard's clock, in which the group handles n records every 5 seconds.
	minute := func(s *site, n int) {
		s.Helper()
		began := time.Now()
		for i := range 13 {
			at := began.Add(time.Duration(i) * 5 * time.Second)
			s.board.SetClock(func() time.Time { return at })
			if i > 0 && n > 0 {
				s.append(orders(n)...)
				shopSite{site: s}.handle("billing", "orders", n)
			}
			s.page("")
		}
	}
	rate := func(s *site) string {
		s.Helper()
		return s.page("topic?topic=orders&group=billing").text()
	}

	t.Run("records that pass at once are counted where the store retains them, though none is ever seen to wait", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), dashboard.Config{Every: time.Nanosecond})
		s.register("billing", "orders")
		s.append(orders(1)...)
		minute(s, 3)
		require.Contains(t, rate(s), "Processed per minute36\n")
		require.Contains(t, rate(s), "Change per minute0\n")
		require.Contains(t, s.page("").body, `<td data-label="Processed per minute" class="n">36</td>`)
	})

	t.Run("it is unknown, and not 0, where processed records are deleted or reach the limit of the counts", func(t *testing.T) {
		t.Parallel()
		store := memstore.New(memstore.NewDatabase(), memstore.Options{})
		require.NoError(t, store.Ensure(t.Context()))
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		deleting := newSite(t, store, dashboard.Config{Every: time.Nanosecond})
		capped := newSite(t, newSQLite(t), dashboard.Config{Every: time.Nanosecond, CountLimit: 5})
		for _, s := range []*site{deleting, capped} {
			s.register("billing", "orders")
			s.append(&outmill.Record{Topic: "orders", Delay: time.Hour})
			minute(s, 2)
			require.Contains(t, rate(s), "Processed per minute–\n", fmt.Sprintf("%T", s.Store))
			require.Contains(t, rate(s), "Change per minute0\n", fmt.Sprintf("%T", s.Store))
		}
	})
}
