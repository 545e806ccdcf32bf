package driver_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
)

func TestLogFind(t *testing.T) {
	t.Parallel()

	// listed are the message ids of all pages of a list.
	listed := func(t *testing.T, s *engine.Engine, query outmill.ListQuery) (ids []string) {
		t.Helper()
		for {
			page, err := s.Find(t.Context(), query)
			require.NoError(t, err)
			for _, r := range page.Records {
				ids = append(ids, r.MessageID)
			}
			if page.Done {
				return ids
			}
			query.After = page.Next
		}
	}

	t.Run("rows whose ids begin alike are all found", func(t *testing.T) {
		t.Parallel()
		s := openLogged(t)
		require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: "orders", MessageID: "same"}))
		for _, segment := range []string{"log_0", "log_1", "log_2"} {
			_, err := s.db.Exec(t.Context(), `INSERT INTO outmill.`+segment+` (created_at, event, id, topic, message_id, payload)
				SELECT l.created_at, l.event, overlay(l.id::text PLACING lpad(to_hex(n), 12, '0') FROM 25)::uuid, l.topic,
					CASE WHEN n % 2 = 0 THEN 'even' ELSE 'odd' END, ''
				FROM outmill.log AS l, generate_series(1, 300) AS n WHERE l.message_id = 'same' AND l.tableoid = $1::regclass`, "outmill."+segment)
			require.NoError(t, err)
		}
		for query, want := range map[outmill.ListQuery]int{
			{Group: "first", Limit: 50}: 301, {Group: "first", Limit: 50, MessageID: "odd"}: 150, {Group: "first", Limit: 50, MessageID: "same"}: 1,
			{Group: "first", Limit: 50, MessageID: "none"}: 0, {Group: "first", Limit: 50, Status: outmill.StatusDead}: 0,
		} {
			require.Len(t, listed(t, s.Engine, query), want, "%+v", query)
		}
	})
}
