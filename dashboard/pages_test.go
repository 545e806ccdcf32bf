package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/dashboard"
	"github.com/outmill/outmill/roles"
)

func TestPages(t *testing.T) {
	t.Parallel()

	t.Run("the overview counts each topic of each group", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			s := newSite(t, store, dashboard.Config{})
			s.register("billing", "orders")
			s.append(orders(3)...)
			s.kill("billing", "orders", "refused")
			s.append(orders(2)...)
			s.append(&outmill.Record{Topic: "returns"})
			page := s.page("")
			require.Contains(t, page.body, `href="topic?group=billing&amp;topic=orders"`)
			require.Contains(t, page.body, `href="records?group=billing&amp;status=dead&amp;topic=orders">3</a>`)
			require.Contains(t, page.text(), "(no group)")
			require.Contains(t, page.body, `<dt>Due</dt><dd>3</dd>`)
			require.Contains(t, page.body, `role="img" aria-label="Waiting: 2 now, between 2 and 2 in the last 0 ms"`)
		})
	})

	t.Run("an empty store has an empty page of each kind", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			s := newSite(t, store, dashboard.Config{})
			require.Contains(t, s.page("").text(), "The store has no records.")
			require.Contains(t, s.page("groups").text(), "No group has ever registered.")
			require.Contains(t, s.page("records?status=dead").text(), "No record matches.")
			require.Contains(t, s.page("dead").text(), "No record matches.")
			require.Contains(t, s.page("audit").text(), "No operator has changed a record.")
			require.Contains(t, s.page("pauses").text(), "Nothing is paused.")
			require.Contains(t, s.page("stores").text(), store.Name())
			require.Contains(t, s.page("find").text(), "Enter the id of a record")
			require.Contains(t, s.page("sagas").text(), "No saga matches.")
			s.page("topic?topic=orders&group=billing")
		})
	})

	t.Run("a count ends at the limit, and the page says so", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			s := newSite(t, store, dashboard.Config{CountLimit: 5})
			s.register("billing", "orders")
			s.append(orders(9)...)
			page := s.page("")
			require.Contains(t, page.body, `<dt>Due</dt><dd>5&#43;</dd>`)
			require.Contains(t, page.text(), "Counts end at 5")
		})
	})

	t.Run("with many topics each count ends earlier, and the page says where", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), dashboard.Config{})
		for i := range 20 {
			s.append(&outmill.Record{Topic: fmt.Sprintf("topic %d", i)})
		}
		require.Contains(t, s.page("topic?topic=topic+1").text(), "Counts end at 1,000.")
		set := newSite(t, s.Store, dashboard.Config{CountLimit: 7})
		require.Contains(t, set.page("topic?topic=topic+1").text(), "Counts end at 7.")
	})

	t.Run("dead letters have their error and attempts, and lead to the record with its history", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			s := newSite(t, store, dashboard.Config{ShowErrors: true})
			s.register("billing", "orders")
			s.append(&outmill.Record{Topic: "orders", Key: "customer 7", MessageID: "order-7", CorrelationID: "talk"})
			dead := s.kill("billing", "orders", "card was refused")
			list := s.page("records?status=dead")
			require.Contains(t, list.text(), "card was refused")
			require.Contains(t, list.body, `href="record?id=`+dead[0].ID.String()+`"`)
			page := s.page("record?id=" + dead[0].ID.String())
			for _, text := range []string{"card was refused", "customer 7", "order-7", "talk", "Appended", "It is dead after 1 claim"} {
				require.Contains(t, page.text(), text)
			}
		})
	})

	t.Run("the error of a record that was requeued is shown as one from before", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			s := newSite(t, store, dashboard.Config{ShowErrors: true})
			s.register("billing", "orders")
			s.append(orders(1)...)
			id := s.kill("billing", "orders", "refused")[0].ID
			const note = "Last error, from before a requeue or a skip brought the record back"
			require.NotContains(t, s.page("record?id="+id.String()).text()+s.page("records").text(), note)
			_, err := store.Requeue(t.Context(), id)
			require.NoError(t, err)
			require.Contains(t, s.page("record?id="+id.String()).text(), note)
			require.Contains(t, s.page("records").text(), "(earlier) refused")
		})
	})

	t.Run("a message is found by its id in all groups, and a record by its own", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			s := newSite(t, store, dashboard.Config{})
			s.register("billing", "orders")
			s.register("mail", "orders")
			record := s.append(&outmill.Record{Topic: "orders", MessageID: "order 4711"})[0]
			page := s.page("find?id=order+4711")
			require.Contains(t, page.text(), "The message has 2 records, one for each group.")
			direct := s.get("find?id=" + record.ID.String())
			require.Equal(t, http.StatusSeeOther, direct.StatusCode)
			require.Equal(t, "record?id="+record.ID.String(), direct.Header.Get("Location"))
			require.Contains(t, s.page("find?id=nobody").text(), "this store cannot tell which")
		})
	})

	t.Run("the search has each filter, and goes on where a page ended", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			s := newSite(t, store, dashboard.Config{ShowErrors: true})
			s.register("billing", "orders")
			s.append(orders(60)...)
			s.append(&outmill.Record{Topic: "placed", Metadata: map[string]string{
				outmill.MetadataContract: "shop placed", outmill.MetadataContractVersion: "2",
			}})
			first := s.page("records?topic=orders&group=billing&status=pending")
			require.Equal(t, 50, strings.Count(first.body, `class="id" href="record?id=`))
			_, rest, found := strings.Cut(first.body, `<a href="records?after=`)
			require.True(t, found)
			after, _, _ := strings.Cut(rest, "&amp;")
			second := s.page("records?topic=orders&after=" + after)
			require.Equal(t, 10, strings.Count(second.body, `class="id" href="record?id=`))
			for filter, n := range map[string]int{
				"message=order-3": 1, "topic=returns": 0, "group=mail": 0, "key=k": 0, "correlation=c": 0, "tenant=t": 0,
				"contract=shop+placed": 1, "contract=shop+placed&version=1": 0, "version=2": 1, "error=e": 0, "older=1h": 0, "newer=7d": 50,
			} {
				require.Equal(t, n, strings.Count(s.page("records?"+filter).body, `class="id" href="record?id=`), filter)
			}
			for _, wrong := range []string{"status=gone", "older=soon", "newer=-1h", "version=x", "version=0", "after=x"} {
				require.Equal(t, http.StatusBadRequest, s.get("records?"+wrong).StatusCode, wrong)
			}
		})
	})

	t.Run("groups have their topics, workers and pauses", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			s := newSite(t, store, dashboard.Config{})
			s.register("billing", "orders", "returns.*")
			pauses, ok := outmill.As[roles.Pauses](store)
			require.True(t, ok)
			require.NoError(t, pauses.Pause(t.Context(), roles.PauseScope{Group: "billing"}, "bob", "the bank is down"))
			text := s.page("groups").text()
			for _, want := range []string{"billing", "orders, returns.*", "host:1", "the bank is down", "bob"} {
				require.Contains(t, text, want)
			}
			s.append(orders(1)...)
			require.Contains(t, s.page("pauses").text(), "the bank is down")
			require.Contains(t, s.page("topic?topic=orders&group=billing").text(), "the bank is down")
			require.Contains(t, s.page("").text(), "paused")
		})
	})

	t.Run("joins have their steps", func(t *testing.T) {
		t.Parallel()
		store := newSQLite(t)
		s := newSite(t, store, dashboard.Config{})
		s.register("billing", "orders")
		join := &roles.Join{ExpectedSteps: 2, GroupingKey: "customer 7"}
		require.NoError(t, store.StartJoin(t.Context(), join))
		step := s.append(&outmill.Record{Topic: "orders", Joins: []outmill.JoinID{join.ID}})[0]
		list := s.page("joins")
		require.Contains(t, list.text(), "customer 7")
		page := s.page("join?id=" + join.ID.String())
		require.Contains(t, page.body, step.ID.String())
		require.Contains(t, page.text(), "Expected steps2")
		require.Contains(t, s.page("joins?status=failed").text(), "No join matches.")
		require.Equal(t, http.StatusNotFound, s.get("join?id="+outmill.NewJoinID().String()).StatusCode)
	})

	t.Run("a saga is found by its type and correlation value", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			sagas, ok := outmill.As[roles.Sagas](store)
			require.True(t, ok)
			type state struct{ Card string }
			require.NoError(t, sagas.InsertSaga(t.Context(), &roles.Saga{Type: "order", Correlation: "order 7"}, &state{"S3CRET"},
				roles.SagaOptions{}))
			hidden := newSite(t, store, dashboard.Config{}).page("sagas?kind=order&correlation=order+7")
			require.Contains(t, hidden.text(), "running")
			require.NotContains(t, hidden.body, "S3CRET")
			shown := newSite(t, store, dashboard.Config{ShowPayloads: true})
			require.Contains(t, shown.page("sagas?kind=order&correlation=order+7").text(), "S3CRET")
			require.Contains(t, shown.page("sagas?kind=order&correlation=8").text(), "No saga of this type")
		})
	})

	t.Run("sagas are listed without their states, the newest first, and a page ends after 50", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			sagas, ok := outmill.As[roles.Sagas](store)
			require.True(t, ok)
			type state struct{ Card string }
			for i := range 60 {
				saga := &roles.Saga{Type: "order", Correlation: fmt.Sprintf("order-%d", i), Finished: i == 59}
				require.NoError(t, sagas.InsertSaga(t.Context(), saga, &state{"S3CRET"}, roles.SagaOptions{}))
			}
			require.NoError(t, sagas.InsertSaga(t.Context(), &roles.Saga{Type: "return", Correlation: "r"}, &state{}, roles.SagaOptions{}))
			s := newSite(t, store, dashboard.Config{ShowPayloads: true})
			page := s.page("sagas?kind=order")
			require.NotContains(t, page.body, "S3CRET")
			require.NotContains(t, page.body, "kind=return")
			require.Contains(t, page.body, `href="sagas?correlation=order-59&amp;kind=order"`)
			require.NotContains(t, page.body, "order-9&amp;")
			require.Equal(t, 1, strings.Count(page.body, ">finished<"))
			_, rest, found := strings.Cut(page.body, `<a href="sagas?after=`)
			require.True(t, found)
			after, _, _ := strings.Cut(rest, "&amp;")
			second := s.page("sagas?kind=order&after=" + after)
			require.Contains(t, second.body, "order-9&amp;")
			require.NotContains(t, second.body, "order-10&amp;")
			require.Contains(t, s.page("sagas").body, "correlation=r&amp;kind=return")
			require.Equal(t, http.StatusBadRequest, s.get("sagas?after=x").StatusCode)
			require.Equal(t, http.StatusBadRequest, s.get("sagas?kind=a+b").StatusCode)
		})
	})

	t.Run("a role that the store lacks is named", func(t *testing.T) {
		t.Parallel()
		store := bare{newSQLite(t)}
		s := newSite(t, store, dashboard.Config{AllowChanges: true})
		s.page("")
		for _, page := range []string{
			"records", "pauses", "pause", "joins", "join?id=" + outmill.NewJoinID().String(), "sagas", "audit", "edit", "skip",
		} {
			require.Contains(t, s.page(page).text(), "This store ", page)
		}
	})

	t.Run("an id or a page that is not there is not found", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			s := newSite(t, store, dashboard.Config{})
			require.Equal(t, http.StatusNotFound, s.get("record?id="+outmill.NewWorkItemID().String()).StatusCode)
			require.Equal(t, http.StatusNotFound, s.get("nothing").StatusCode)
			require.Equal(t, http.StatusNotFound, s.get("record/?id=x").StatusCode)
			require.Equal(t, http.StatusBadRequest, s.get("record?id=x").StatusCode)
			require.Equal(t, http.StatusBadRequest, s.get("topic").StatusCode)
			require.Equal(t, http.StatusNotFound, s.get("?store=other").StatusCode)
			require.Equal(t, http.StatusMethodNotAllowed, s.do(http.MethodPut, "", nil, nil).StatusCode)
			require.Equal(t, http.StatusMethodNotAllowed, s.do(http.MethodPost, "groups", nil, nil).StatusCode)
		})
	})

	t.Run("the counts of pages that are opened together come from one look", func(t *testing.T) {
		t.Parallel()
		store := &counting{Store: newSQLite(t)}
		s := newSite(t, store, dashboard.Config{Every: time.Hour, CountLimit: 10_000})
		for _, path := range []string{"", "?q=x", "stores", "topic?topic=orders"} {
			s.page(path)
		}
		require.EqualValues(t, 1, store.looks.Load())
	})

	t.Run("a store that fails is reported without its error, and the old counts stay", func(t *testing.T) {
		t.Parallel()
		store := &counting{Store: newSQLite(t)}
		s := newSite(t, store, dashboard.Config{Every: time.Nanosecond})
		s.register("billing", "orders")
		s.append(orders(1)...)
		s.page("")
		store.broken.Store(true)
		page := s.page("")
		require.Contains(t, page.text(), "The counts are old")
		require.Contains(t, page.body, "topic?group=billing&amp;topic=orders")
		require.NotContains(t, page.body, "postgres://")
	})

	t.Run("all links are relative and lead to pages", func(t *testing.T) {
		t.Parallel()
		store := newSQLite(t)
		board, err := dashboard.New(store, dashboard.Config{
			User: func(*http.Request) string { return "ann" }, AllowChanges: true, ShowErrors: true, ShowPayloads: true}, nil)
		require.NoError(t, err)
		mux := http.NewServeMux()
		mux.Handle("/admin/outbox/", http.StripPrefix("/admin/outbox", board))
		s := newSite(t, store, dashboard.Config{})
		s.register("billing", "orders")
		s.append(&outmill.Record{Topic: "orders", Key: "a/b&c=d", MessageID: "//evil.example/x"}, &outmill.Record{Topic: "javascript:alert(1)"})
		s.kill("billing", "orders", "refused")
		crawl(t, mux, "/admin/outbox/")
	})

	t.Run("a mount without a slash at the end leads to the one with it", func(t *testing.T) {
		t.Parallel()
		board, err := dashboard.New(newSQLite(t), dashboard.Config{User: func(*http.Request) string { return "ann" }}, nil)
		require.NoError(t, err)
		mux := http.NewServeMux()
		mux.Handle("/outbox", http.StripPrefix("/outbox", board))
		mux.Handle("/outbox/", http.StripPrefix("/outbox", board))
		got := serveLocal(t, mux, http.MethodGet, "/outbox")
		require.Equal(t, http.StatusPermanentRedirect, got.Code)
		base, err := url.Parse("http://localhost/outbox")
		require.NoError(t, err)
		to, err := base.Parse(got.Header().Get("Location"))
		require.NoError(t, err)
		require.Equal(t, "/outbox/", to.Path)
	})
}
