package dashboard_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/dashboard"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

func TestAudit(t *testing.T) {
	t.Parallel()
	all := dashboard.Config{AllowChanges: true, ShowErrors: true, ShowPayloads: true}

	t.Run("the history of a record has what operators did to it, who and when, in the order of the times", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			s := newSite(t, store, all)
			s.register("billing", "orders")
			s.append(&outmill.Record{Topic: "orders", Payload: []byte("12345"), Metadata: map[string]string{"a": "b"}},
				&outmill.Record{Topic: "orders"})
			dead := s.kill("billing", "orders", "refused")
			id, other := dead[0].ID.String(), dead[1].ID.String()
			require.NotContains(t, s.page("record?id="+id).text(), " by ann")
			s.submit(s.page("edit?id="+id), "payload", "123", "metadata", `{"a":"c"}`)
			s.post("requeue", "status", "dead", "topic", "orders")
			text := s.page("record?id=" + id).text()
			appended, edited, requeued := strings.Index(text, "Appended"), strings.Index(text, "Edited"), strings.Index(text, "Requeued")
			require.Less(t, appended, edited)
			require.Less(t, edited, requeued)
			require.Contains(t, text, "by ann, 5 to 3 bytes; metadata a")
			require.NotContains(t, s.page("record?id="+other).text(), "Edited")
			require.Contains(t, s.page("record?id="+other).text(), "Requeued")
			hidden := newSite(t, store, dashboard.Config{}).page("record?id=" + id).text()
			require.Contains(t, hidden, "by ann, 5 to 3 bytes")
			require.NotContains(t, hidden, "; metadata")

			require.Contains(t, s.page("record?id="+id).body, `href="audit?record=`+id+`"`)
			audit := s.page("audit?record=" + id).body
			require.Contains(t, audit, `<td data-label="What">edit`)
			require.Contains(t, audit, `<td data-label="What">requeue`)
			require.NotContains(t, s.page("audit?record="+other).body, `<td data-label="What">edit`)
			require.Contains(t, s.page("audit?record="+outmill.NewWorkItemID().String()).text(), "No entry names the record.")
			require.Equal(t, http.StatusBadRequest, s.get("audit?record=x").StatusCode)
			require.Equal(t, http.StatusBadRequest, s.get("audit?after=x").StatusCode)
		})
	})

	t.Run("behind many newer entries the history says so, and leads on to the older ones", func(t *testing.T) {
		t.Parallel()
		store := newSQLite(t)
		s := newSite(t, store, all)
		s.register("billing", "orders")
		s.append(orders(2)...)
		dead := s.kill("billing", "orders", "refused")
		first := dead[0].ID.String()
		s.submit(s.page("edit?id="+first), "payload", "1")
		ctx := storekit.WithActor(t.Context(), "bob")
		for i := range 250 {
			r, err := store.Get(ctx, dead[1].ID)
			require.NoError(t, err)
			_, err = store.Edit(ctx, r.ID, roles.Edit{Seen: storekit.FingerprintOf(r), Payload: []byte(strings.Repeat("x", i))})
			require.NoError(t, err)
		}
		page := s.page("record?id=" + first)
		require.NotContains(t, page.text(), "Edited")
		_, rest, found := strings.Cut(page.body, `href="audit?after=`)
		require.True(t, found, page.body)
		after, _, _ := strings.Cut(rest, "&amp;")
		older := s.page("audit?record=" + first + "&after=" + after).text()
		require.Contains(t, older, "ann")
		require.NotContains(t, older, "bob")
		newest := s.page("audit?record=" + first).text()
		require.Contains(t, newest, "None of the entries looked at so far names the record.")
		require.Contains(t, newest, "Looked at 200 entries; the audit has more.")
	})

	t.Run("a deleted record is in the audit, where its page is gone", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			s := newSite(t, store, all)
			s.register("billing", "orders")
			s.append(orders(1)...)
			id := s.kill("billing", "orders", "refused")[0].ID.String()
			s.submit(s.page("delete?id=" + id))
			require.Equal(t, http.StatusNotFound, s.get("record?id="+id).StatusCode)
			text := s.page("audit?record=" + id).text()
			require.Contains(t, text, "ann")
			require.Contains(t, text, "delete")
		})
	})
}
