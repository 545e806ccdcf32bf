package dashboard_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/dashboard"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
)

// TestEngines shows and changes something on each page with the stores that are servers. The other
// tests do so with SQLite and the store in memory.
func TestEngines(t *testing.T) {
	t.Parallel()

	t.Run("each page and change works on PostgreSQL", func(t *testing.T) {
		t.Parallel()
		tour(t, newPostgres(t))
	})

	t.Run("each page and change works on MongoDB", func(t *testing.T) {
		t.Parallel()
		tour(t, newMongo(t))
	})
}

func newPostgres(t *testing.T) *postgres.Store {
	t.Helper()
	store, err := postgres.Open(t.Context(), postgrestest.Database(t), postgres.Config{EnsureSchema: true, Retain: time.Hour}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

func newMongo(t *testing.T) *mongo.Store {
	t.Helper()
	config := mongo.Config{Database: mongotest.Database(t).Name(), EnsureSchema: true, Retain: time.Hour}
	store, err := mongo.Open(t.Context(), mongotest.Server(t), config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

// tour opens each page and makes each change. A role that the store lacks is named on its page.
func tour(t *testing.T, store outmill.Store) {
	t.Helper()
	s := newSite(t, store, dashboard.Config{AllowChanges: true, ShowErrors: true, ShowPayloads: true, Every: time.Nanosecond})
	s.register("billing", "orders")
	s.register("mail", "orders")
	s.append(orders(4)...)
	dead := s.kill("billing", "orders", "card <b>was</b> refused")
	first, second := dead[0].ID.String(), dead[1].ID.String()

	require.Contains(t, s.page("").body, `href="records?group=billing&amp;status=dead&amp;topic=orders">4</a>`)
	live, err := s.stream(t.Context(), "events?view=topic&group=billing&topic=orders").next()
	require.NoError(t, err)
	require.Contains(t, live, "<dt>Dead</dt><dd>4</dd>")
	require.Contains(t, s.page("topic?topic=orders&group=mail").body, "<dt>Due</dt><dd>4</dd>")
	require.Contains(t, s.page("stores").text(), store.Name())
	require.Contains(t, s.page("groups").text(), "host:1")
	for _, path := range []string{"records?status=dead&topic=orders&error=was", "records?message=order-0", "record?id=" + first} {
		require.Contains(t, s.page(path).text(), "card <b>was</b> refused", path)
	}
	require.Contains(t, s.page("find?id="+dead[0].MessageID).text(), "group mail")
	require.Equal(t, http.StatusNotFound, s.get("record?id="+outmill.NewWorkItemID().String()).StatusCode)

	tourOfPauses(t, s)
	tourOfJoinsAndSagas(t, s)
	tourOfWorkbench(t, s, first, second)

	require.Contains(t, s.submit(s.page("requeue?id="+dead[2].ID.String())).text(), "1 record was requeued.")
	require.Contains(t, s.submit(s.page("requeue?status=dead&topic=orders&error=refused")).text(), " requeued.")
	require.Equal(t, outmill.StatusPending, s.status(dead[2].ID))
	require.Contains(t, s.submit(s.page("delete?id="+dead[2].ID.String())).text(), "1 record was deleted.")
	require.Contains(t, s.submit(s.page("delete?status=pending&topic=orders&group=mail")).text(), "4 records were deleted.")
	require.Contains(t, s.submit(s.page("drop-group?group=mail")).text(), "The group was dropped")
	require.NotContains(t, s.page("groups").text(), "mail")
}

func tourOfPauses(t *testing.T, s *site) {
	t.Helper()
	paused := s.submit(s.page("pause?topic=orders"), "topic", "orders", "reason", "the bank is down")
	require.Contains(t, paused.text(), "Deliveries are paused.")
	require.Contains(t, s.page("pauses").text(), "the bank is down")
	require.Contains(t, s.page("topic?topic=orders&group=mail").text(), "the bank is down")
	require.Contains(t, s.submit(s.page("resume?topic=orders")).text(), "Deliveries are resumed.")
}

func tourOfJoinsAndSagas(t *testing.T, s *site) {
	t.Helper()
	joins, ok := outmill.As[roles.Joins](s.Store)
	require.True(t, ok)
	join := &roles.Join{ExpectedSteps: 2, GroupingKey: "customer 7"}
	require.NoError(t, joins.StartJoin(t.Context(), join))
	id := join.ID.String()
	require.Contains(t, s.page("joins").text(), "customer 7")
	require.Contains(t, s.submit(s.page("cancel-join?id="+id), "reason", "withdrawn").text(), "The join is cancelled.")
	require.Contains(t, s.page("join?id="+id).text(), "withdrawn")
	sagas, ok := outmill.As[roles.Sagas](s.Store)
	require.True(t, ok)
	type state struct{ Step string }
	require.NoError(t, sagas.InsertSaga(t.Context(), &roles.Saga{Type: "order", Correlation: "7"}, &state{"paid"}, roles.SagaOptions{}))
	require.Contains(t, s.page("sagas?kind=order&correlation=7").text(), "paid")
	require.Contains(t, s.page("sagas?kind=order").body, "correlation=7&amp;kind=order")
	require.Regexp(t, "correlation=7&amp;kind=order|enter a type to list its sagas", s.page("sagas").body)
}

// tourOfWorkbench edits the first record and skips the second one.
func tourOfWorkbench(t *testing.T, s *site, first, second string) {
	t.Helper()
	_, repairs := outmill.As[roles.Repairs](s.Store)
	if !repairs {
		require.Equal(t, http.StatusSeeOther, s.get("dead").StatusCode)
		require.NotContains(t, s.page("record?id="+first).body, `href="edit?`)
		for _, path := range []string{"edit?id=" + first, "skip?id=" + first} {
			require.Contains(t, s.page(path).text(), "roles.Repairs", path)
		}
	} else {
		require.Equal(t, 4, strings.Count(s.page("dead").body, `class="id" href="record?id=`))
		require.Contains(t, s.submit(s.page("edit?id="+first), "payload", "changed <i>").text(), "The record is changed.")
		require.Contains(t, s.page("record?id="+first).text(), "changed <i>")
		require.Contains(t, s.submit(s.page("skip?id="+second)).text(), "The record was skipped.")
		require.Equal(t, http.StatusNotFound, s.get("record?id="+second).StatusCode)
	}
	if !repairs {
		require.Contains(t, s.page("audit").text(), "roles.Repairs")
		return
	}
	require.Contains(t, s.page("record?id="+first).text(), "by ann")
	require.Contains(t, s.page("audit?record="+second).body, `<td data-label="What">skip`)
}
