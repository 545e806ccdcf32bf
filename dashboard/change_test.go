package dashboard_test

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/dashboard"
	"github.com/outmill/outmill/roles"
)

// submit submits the form of a confirmation, as a browser without scripts does.
func (s *site) submit(page answer, pairs ...string) answer {
	s.Helper()
	action := regexp.MustCompile(`<form class="confirm(?: edit)?" action="([^"]+)" method="post">`).FindStringSubmatch(page.body)
	require.NotNil(s, action, page.body)
	for _, field := range regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`).FindAllStringSubmatch(page.body, -1) {
		pairs = append([]string{field[1], html.UnescapeString(field[2])}, pairs...)
	}
	return s.post(action[1], pairs...)
}

func TestChanges(t *testing.T) {
	t.Parallel()
	allowed := dashboard.Config{AllowChanges: true, ShowErrors: true}

	t.Run("a dead record is requeued after a confirmation, which itself changes nothing", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			s := newSite(t, store, allowed)
			s.register("billing", "orders")
			s.append(orders(2)...)
			dead := s.kill("billing", "orders", "refused")
			id := dead[0].ID.String()
			require.Contains(t, s.page("record?id="+id).body, `href="requeue?id=`+id+`"`)
			ask := s.page("requeue?id=" + id)
			require.Equal(t, outmill.StatusDead, s.status(dead[0].ID))
			done := s.submit(ask)
			require.Equal(t, http.StatusOK, done.StatusCode)
			require.Contains(t, done.text(), "1 record was requeued.")
			require.Equal(t, outmill.StatusPending, s.status(dead[0].ID))
			require.Equal(t, outmill.StatusDead, s.status(dead[1].ID))
			require.Contains(t, s.submit(ask).text(), "Nothing was requeued")
		})
	})

	t.Run("all records that match are requeued, and no others", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			s := newSite(t, store, allowed)
			s.register("billing", "orders", "returns")
			s.append(orders(3)...)
			timeouts := s.kill("billing", "orders", "timeout of the bank")
			s.append(orders(2)...)
			others := s.kill("billing", "orders", "refused")
			ask := s.page("requeue?status=dead&topic=orders&error=timeout")
			require.Contains(t, ask.text(), "Error text contains")
			require.Contains(t, s.submit(ask).text(), "3 records were requeued.")
			for _, r := range timeouts {
				require.Equal(t, outmill.StatusPending, s.status(r.ID))
			}
			for _, r := range others {
				require.Equal(t, outmill.StatusDead, s.status(r.ID))
			}
			require.Contains(t, s.page("requeue?status=dead&topic=orders").text(), "Records2")
		})
	})

	t.Run("records are deleted by id and by a search that has a status", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			s := newSite(t, store, allowed)
			s.register("billing", "orders")
			s.append(orders(3)...)
			dead := s.kill("billing", "orders", "refused")
			waiting := s.append(orders(1)...)[0]
			require.Contains(t, s.submit(s.page("delete?id="+dead[0].ID.String())).text(), "1 record was deleted.")
			_, err := store.Get(t.Context(), dead[0].ID)
			require.ErrorIs(t, err, outmill.ErrNotFound)
			require.Equal(t, http.StatusBadRequest, s.get("delete?topic=orders").StatusCode)
			require.Equal(t, http.StatusBadRequest, s.post("delete", "topic", "orders").StatusCode)
			require.Equal(t, http.StatusBadRequest, s.post("delete").StatusCode)
			require.Equal(t, http.StatusBadRequest, s.post("requeue", "status", "pending").StatusCode)
			require.Contains(t, s.submit(s.page("delete?status=dead")).text(), "2 records were deleted.")
			require.Equal(t, outmill.StatusPending, s.status(waiting.ID))
		})
	})

	t.Run("deliveries are paused and resumed, with the name of the user", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			s := newSite(t, store, allowed)
			pauses, _ := outmill.As[roles.Pauses](store)
			ask := s.page("pause?topic=orders")
			require.Contains(t, ask.body, `name="topic" value="orders"`)
			require.Contains(t, s.submit(ask, "topic", "orders", "reason", "the bank is down").text(), "Deliveries are paused.")
			paused, err := pauses.Paused(t.Context())
			require.NoError(t, err)
			require.Len(t, paused, 1)
			require.Equal(t, roles.PauseScope{Topic: "orders"}, paused[0].PauseScope)
			require.Equal(t, "ann", paused[0].By)
			require.Equal(t, "the bank is down", paused[0].Reason)
			require.Contains(t, s.page("pauses").body, `href="resume?topic=orders"`)
			resume := s.page("resume?topic=orders")
			require.Contains(t, s.submit(resume).text(), "Deliveries are resumed.")
			require.Contains(t, s.submit(resume).text(), "There was no such pause.")
			require.Equal(t, http.StatusBadRequest, s.post("pause", "reason", "nothing named").StatusCode)
			require.Equal(t, http.StatusBadRequest, s.post("pause", "key", "k").StatusCode)
		})
	})

	t.Run("the head of a parked key is edited or skipped, and the audit names the user", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			s := newSite(t, store, dashboard.Config{AllowChanges: true, ShowErrors: true, ShowPayloads: true})
			s.register("billing", "orders")
			s.append(&outmill.Record{Topic: "orders", Key: "k", Payload: []byte("{\"amount\": 1,\n\"to\": \"x\"}"),
				Metadata: map[string]string{"a": "b"}})
			claimed, err := store.Claim(t.Context(), outmill.ClaimRequest{
				Owner: outmill.NewOwnerToken(), Group: "billing", Topics: outmill.Topics{Include: []string{"orders"}},
				Limit: 1, Lease: time.Minute, Order: outmill.OrderKey,
			})
			require.NoError(t, err)
			s.append(&outmill.Record{Topic: "orders", Key: "k"}, &outmill.Record{Topic: "orders", Key: "k"})
			require.NoError(t, store.Fail(t.Context(), []outmill.Settlement{{Lease: claimed[0].Lease(), Err: "refused", Park: true}}))
			id := claimed[0].ID.String()
			dead := s.page("dead")
			require.Equal(t, 1, strings.Count(dead.body, `class="id" href="record?id=`), "those behind the head are not listed")
			require.Contains(t, dead.body, `<td data-label="Waiting behind" class="n">2</td>`)

			form := s.page("edit?id=" + id)
			require.Contains(t, form.text(), "\n{\"amount\": 1,\n\"to\": \"x\"}")
			seen := regexp.MustCompile(`name="seen" value="([^"]+)"`).FindStringSubmatch(form.body)[1]
			same := s.post("edit", "id", id, "seen", seen, "payload", "{\"amount\": 1,\r\n\"to\": \"x\"}", "metadata", `{"a":"b"}`)
			require.Contains(t, same.text(), "Nothing was changed", "browsers end lines with CR and LF")
			require.Equal(t, http.StatusBadRequest, s.post("edit", "id", id, "seen", seen, "metadata", `["a"]`).StatusCode)
			changed := s.post("edit", "id", id, "seen", seen, "payload", "{\r\n}", "metadata", `{"a":"c"}`)
			require.Contains(t, changed.text(), "The record is changed.")
			edited, err := store.Get(t.Context(), claimed[0].ID)
			require.NoError(t, err)
			require.Equal(t, "{\n}", string(edited.Payload))
			require.Equal(t, map[string]string{"a": "c"}, edited.Metadata)
			require.Equal(t, http.StatusConflict, s.post("edit", "id", id, "seen", seen, "payload", "other").StatusCode)

			require.Contains(t, s.submit(s.page("skip?id="+id)).text(), "The record was skipped. 2 records became due behind the record.")
			require.Equal(t, http.StatusNotFound, s.get("skip?id="+id).StatusCode)
			audit := s.page("audit")
			require.Contains(t, audit.text(), "ann")
			require.Contains(t, audit.text(), "skip")
			require.Contains(t, audit.text(), "24 to 3 bytes")
			require.Contains(t, s.page("dead").text(), "No record matches.")
		})
	})

	t.Run("an edit of the metadata leaves a nil payload nil, which the page of the record shows", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			s := newSite(t, store, dashboard.Config{AllowChanges: true, ShowPayloads: true})
			s.register("billing", "orders")
			s.append(&outmill.Record{Topic: "orders"}, &outmill.Record{Topic: "orders", Payload: []byte{}})
			shown := []string{"The payload is nil.", "0 bytes."}
			for i, dead := range s.kill("billing", "orders", "refused") {
				id := dead.ID.String()
				require.Contains(t, s.page("record?id="+id).text(), shown[i])
				form := s.page("edit?id=" + id)
				seen := regexp.MustCompile(`name="seen" value="([^"]+)"`).FindStringSubmatch(form.body)[1]
				changed := s.post("edit", "id", id, "seen", seen, "payload", "", "metadata", `{"a":"c"}`)
				require.Contains(t, changed.text(), "The record is changed.")
				edited, err := store.Get(t.Context(), dead.ID)
				require.NoError(t, err)
				require.Equal(t, i == 0, edited.Payload == nil)
			}
		})
	})

	t.Run("payloads that are hidden are not edited, and records that are not dead neither", func(t *testing.T) {
		t.Parallel()
		store := newSQLite(t)
		hidden, shown := newSite(t, store, allowed), newSite(t, store, dashboard.Config{AllowChanges: true, ShowPayloads: true})
		hidden.register("billing", "orders")
		hidden.append(&outmill.Record{Topic: "orders", Payload: []byte("\x00\xff S3CRET")})
		dead := hidden.kill("billing", "orders", "refused")[0].ID.String()
		waiting := hidden.append(orders(1)...)[0].ID.String()
		require.Equal(t, http.StatusForbidden, hidden.get("edit?id="+dead).StatusCode)
		require.Equal(t, http.StatusForbidden, hidden.post("edit", "id", dead, "payload", "x").StatusCode)
		require.NotContains(t, hidden.page("record?id="+dead).body, `"edit?`)
		require.Equal(t, http.StatusConflict, shown.get("edit?id="+waiting).StatusCode)
		require.Equal(t, http.StatusConflict, shown.post("skip", "id", waiting).StatusCode)
		form := shown.page("edit?id=" + dead)
		require.Contains(t, form.text(), "The payload is no text")
		require.NotContains(t, form.body, "S3CRET")
	})

	t.Run("a group is dropped", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, store outmill.Store) {
			s := newSite(t, store, allowed)
			s.register("billing", "orders")
			s.append(orders(2)...)
			require.Contains(t, s.page("groups").body, `href="drop-group?group=billing"`)
			ask := s.page("drop-group?group=billing")
			require.Regexp(t, `Given back\s*2 records\s*Deleted\s*0 records`, ask.text())
			require.Contains(t, s.submit(ask).text(), "The group was dropped: 0 records deleted, 2 records given back")
			require.Equal(t, http.StatusBadRequest, s.get("drop-group").StatusCode)
			require.Equal(t, http.StatusBadRequest, s.post("drop-group").StatusCode)
		})
	})

	t.Run("a join is cancelled once", func(t *testing.T) {
		t.Parallel()
		store := newSQLite(t)
		s := newSite(t, store, allowed)
		join := &roles.Join{ExpectedSteps: 2}
		require.NoError(t, store.StartJoin(t.Context(), join))
		id := join.ID.String()
		require.Contains(t, s.page("join?id="+id).body, `href="cancel-join?id=`+id+`"`)
		ask := s.page("cancel-join?id=" + id)
		require.Contains(t, s.submit(ask, "reason", "the order was withdrawn").text(), "The join is cancelled.")
		page := s.page("join?id=" + id)
		require.Contains(t, page.text(), "the order was withdrawn")
		require.NotContains(t, page.body, "cancel-join")
	})

	t.Run("a form that is too large is refused", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, newSQLite(t), allowed)
		require.Equal(t, http.StatusBadRequest, s.post("pause", "topic", string(make([]byte, 5<<20))).StatusCode)
	})
}
