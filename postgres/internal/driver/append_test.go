package driver_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/postgres/internal/driver"
	"github.com/outmill/outmill/storekit"
)

// send appends by the function of the schema, as a program in another language does.
func send(t *testing.T, db *pgxpool.Pool, schema string, records ...*outmill.Record) (appended int, err error) {
	t.Helper()
	text := func(of func(r *outmill.Record) string) (list []string) {
		for _, r := range records {
			list = append(list, of(r))
		}
		return list
	}
	var payloads [][]byte
	var metadatas []*string
	var dues, expires []*time.Time
	var delays, lives []int64
	at := func(at time.Time) *time.Time {
		if at.IsZero() {
			return nil
		}
		return &at
	}
	for _, r := range records {
		payloads, delays, lives = append(payloads, r.Payload), append(delays, r.Delay.Microseconds()), append(lives, r.TimeToLive.Microseconds())
		dues, expires = append(dues, at(r.DueAt)), append(expires, at(r.ExpiresAt))
		metadatas = append(metadatas, nil)
		if r.Metadata != nil {
			made, err := json.Marshal(r.Metadata)
			require.NoError(t, err)
			object := string(made)
			metadatas[len(metadatas)-1] = &object
		}
	}
	err = db.QueryRow(t.Context(), "SELECT "+schema+".append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
		text(func(r *outmill.Record) string { return r.Topic }), payloads, text(func(r *outmill.Record) string { return r.Key }), metadatas,
		text(func(r *outmill.Record) string { return r.MessageID }), text(func(r *outmill.Record) string { return r.DedupKey }),
		text(func(r *outmill.Record) string { return r.TenantID }), text(func(r *outmill.Record) string { return r.CorrelationID }),
		text(func(r *outmill.Record) string { return r.CausationID }), text(func(r *outmill.Record) string { return r.TraceParent }),
		text(func(r *outmill.Record) string { return r.TraceState }), dues, delays, expires, lives).Scan(&appended)
	return appended, err
}

// varied returns records that use every field which the function takes.
func varied() map[string][]*outmill.Record {
	full := &outmill.Record{
		Topic: "orders", Key: "é'\"\\", MessageID: "full", Payload: []byte{0, 1, 255},
		Metadata:      map[string]string{"name": "a \"é\"\n", "": "<&>"},
		CorrelationID: "correlation", CausationID: "cause 'é'", TenantID: "tenant",
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		TraceState:  "a=b,c=d",
	}
	var fair []*outmill.Record
	for i := range 20 {
		fair = append(fair, &outmill.Record{Topic: "fair.é", MessageID: fmt.Sprint(i), TenantID: fmt.Sprint("tenant ", i)})
	}
	return map[string][]*outmill.Record{
		"plain":   {{Topic: "orders", MessageID: "m1"}, {Topic: "orders", MessageID: "m2", Payload: []byte{}, Key: "k"}, full},
		"delayed": {{Topic: "orders", MessageID: "later", Delay: time.Hour}},
		"due": {{Topic: "orders", MessageID: "at", DueAt: time.Date(2100, 1, 2, 3, 4, 5, 678901000, time.UTC)},
			{Topic: "orders", MessageID: "past", DueAt: time.Date(2001, 1, 2, 3, 4, 5, 678901000, time.UTC)}},
		"expiring": {{Topic: "orders", MessageID: "soon", TimeToLive: time.Hour},
			{Topic: "orders", MessageID: "then", ExpiresAt: time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC)}},
		"several topics": {{Topic: "orders", MessageID: "m1"}, {Topic: "others", MessageID: "m2"}, {Topic: "audit.x", MessageID: "m3"}},
		"unrouted":       {{Topic: "nobody", MessageID: "m1"}, {Topic: "orders", MessageID: "m2"}},
		"deduplicated": {{Topic: "orders", MessageID: "a", DedupKey: "k"}, {Topic: "orders", MessageID: "b", DedupKey: "k"},
			{Topic: "others", MessageID: "c", DedupKey: "k"}, {Topic: "orders", MessageID: "none"}},
		"letters that are no blanks": {{Topic: "vox v", MessageID: "m1", Key: "vav"}},
		"fair":                       fair,
	}
}

// stored are the columns of what is in the schema, without ids and times of the append.
func stored(t *testing.T, db *pgxpool.Pool, schema string) string {
	t.Helper()
	return valueOf[string](t, db, `SELECT coalesce(json_agg(row_to_json(r) ORDER BY r.message_id, r.grp)::text, '')
		FROM (SELECT grp, topic, key,
		tenant_id, size, stage, lane, message_id, correlation_id, causation_id, traceparent, tracestate, dedup_key, metadata::jsonb, payload,
		(wake_at - created_at) / 3600000000 AS wake, (next_at - created_at) / 3600000000 AS next, (due_at - created_at) / 3600000000 AS due,
		CASE WHEN expires_at > 0 THEN (expires_at - created_at) / 3600000000 END AS expires, attempts, claims, parked, owner,
		rank() OVER (ORDER BY seq) AS place, count(*) OVER (PARTITION BY message_id, substr(id::text, 1, 18)) AS copies
		FROM `+schema+`.records) AS r`)
}

func TestAppendOfTheSchema(t *testing.T) {
	t.Parallel()
	both := func(t *testing.T) (appended, sent opened) {
		t.Helper()
		_, super := ready(t)
		open := func(schema string) opened {
			d := driver.New(driver.PoolOf(super.db), driver.Config{Name: schema, Schema: schema})
			d.RecordsOnly()
			o := opened{engine.New(d, engine.Config{FairTopics: []string{"fair.*"}}), d, super.db, schema}
			t.Cleanup(func() { require.NoError(t, o.Close()) })
			require.NoError(t, o.Ensure(t.Context()))
			for group, topics := range map[string]outmill.Topics{
				"forwarder": {Exclude: []string{"nobody"}}, "readers": {Include: []string{"orders"}},
				"é": {Include: []string{"*s", `a\*`}, Exclude: []string{"oth*"}}, "zz": {Include: []string{"audit.*"}},
			} {
				require.NoError(t, o.RegisterGroup(t.Context(), outmill.Registration{Group: group, Topics: topics}))
			}
			return o
		}
		return open("appended"), open("sent")
	}

	t.Run("it appends the same records as the store", func(t *testing.T) {
		t.Parallel()
		appended, sent := both(t)
		for name := range varied() {
			require.NoError(t, appended.Append(t.Context(), varied()[name]...), name)
			_, err := send(t, sent.db, "sent", varied()[name]...)
			require.NoError(t, err, name)
			require.JSONEq(t, stored(t, sent.db, "appended"), stored(t, sent.db, "sent"), name)
			for _, schema := range []string{"appended", "sent"} {
				execute(t, sent.db, "DELETE FROM "+schema+".records")
				execute(t, sent.db, "DELETE FROM "+schema+".entries WHERE kind = 'dedup'")
			}
		}
	})

	t.Run("an id leads to the copies of the other groups", func(t *testing.T) {
		t.Parallel()
		_, sent := both(t)
		_, err := send(t, sent.db, "sent", &outmill.Record{Topic: "orders"})
		require.NoError(t, err)
		var groups []string
		var ids []outmill.WorkItemID
		rows, err := sent.db.Query(t.Context(), "SELECT grp, id FROM sent.records ORDER BY seq")
		require.NoError(t, err)
		for rows.Next() {
			var group string
			var id [16]byte
			require.NoError(t, rows.Scan(&group, &id))
			groups, ids = append(groups, group), append(ids, id)
		}
		require.NoError(t, rows.Err())
		require.Equal(t, []string{"forwarder", "readers", "é"}, groups)
		for i, group := range groups[1:] {
			require.Equal(t, outmill.CopyID(ids[0], group), ids[i+1])
		}
	})

	t.Run("it knows the dedup keys of the store, and the store its keys", func(t *testing.T) {
		t.Parallel()
		_, sent := both(t)
		keyed := func(key string) *outmill.Record { return &outmill.Record{Topic: "orders", DedupKey: key} }
		require.NoError(t, sent.Append(t.Context(), keyed("a")))
		n, err := send(t, sent.db, "sent", keyed("a"), keyed("b"), keyed("b"))
		require.NoError(t, err)
		require.Equal(t, 1, n)
		again := keyed("b")
		require.NoError(t, sent.Append(t.Context(), again))
		require.True(t, again.Duplicate)
	})

	t.Run("it refuses what a store refuses, and writes nothing", func(t *testing.T) {
		t.Parallel()
		_, sent := both(t)
		long := strings.Repeat("é", outmill.MaxTopicLength)
		for field, record := range map[string]*outmill.Record{
			"topic": {}, "topic ": {Topic: " orders"}, "topic  ": {Topic: "orders\u3000"}, "topic   ": {Topic: long + "x"},
			"key": {Topic: "orders", Key: "k "}, "key ": {Topic: "orders", Key: strings.Repeat("😀", 128)},
			"dedup key":  {Topic: "orders", DedupKey: "\tk"},
			"message id": {Topic: "orders", MessageID: long + "x"}, "correlation id": {Topic: "orders", CorrelationID: long + "x"},
			"tenant id": {Topic: "orders", TenantID: long + "x"}, "tracestate": {Topic: "orders", TraceState: strings.Repeat(long, 4) + "x"},
			"delay": {Topic: "orders", Delay: -time.Hour}, "time to live": {Topic: "orders", TimeToLive: -time.Hour},
			"due at":   {Topic: "orders", DueAt: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
			"metadata": {Topic: "orders", Metadata: map[string]string{"a": strings.Repeat("x", outmill.MaxMetadataBytes)}},
		} {
			require.Error(t, storekit.CheckRecords([]*outmill.Record{record}, 0), field)
			_, err := send(t, sent.db, "sent", &outmill.Record{Topic: "orders"}, record)
			require.ErrorContains(t, err, "message 2: "+strings.TrimSpace(field), field)
		}
		for _, metadata := range []string{`[]`, `"a"`, `{"a": 1}`, `{"a": null}`, `{"a": {}}`, `{"a": "\u0000"}`, `{`, `null`} {
			_, err := sent.db.Exec(t.Context(), "SELECT sent.append($1, NULL, metadatas => $2)", []string{"orders"}, []string{metadata})
			require.Error(t, err, metadata)
		}
		_, err := sent.db.Exec(t.Context(), "SELECT sent.append($1, NULL, keys => $2)", []string{"orders"}, []string{"a", "b"})
		require.ErrorContains(t, err, "keys and topics differ in length")
		require.Equal(t, 0, valueOf[int](t, sent.db, "SELECT count(*) FROM sent.records"))
		_, err = send(t, sent.db, "sent", &outmill.Record{Topic: long, Key: strings.Repeat("😀", 127), MessageID: " blank "})
		require.NoError(t, err, "the longest ones")
	})

	t.Run("it ignores the search path and the settings of its caller", func(t *testing.T) {
		t.Parallel()
		database, super := ready(t)
		require.NoError(t, super.RegisterGroup(t.Context(), outmill.Registration{Group: "readers"}))
		execute(t, super.db, "CREATE SCHEMA evil")
		execute(t, super.db, "CREATE FUNCTION evil.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$")
		execute(t, super.db, "CREATE FUNCTION evil.btrim(text, text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$")
		execute(t, super.db, "CREATE TABLE evil.entries (kind text)")
		db := connect(t, database, 1, func(c *pgxpool.Config) {
			for setting, value := range hostile {
				c.ConnConfig.RuntimeParams[setting] = value
			}
			c.ConnConfig.RuntimeParams["search_path"] = "evil, pg_catalog"
		})
		_, err := send(t, db, "outmill", varied()["plain"]...)
		require.NoError(t, err)
		owner := outmill.NewOwnerToken()
		got, err := super.Claim(t.Context(), outmill.ClaimRequest{Owner: owner, Group: "readers", Limit: 10, Lease: time.Minute})
		require.NoError(t, err)
		require.Len(t, got, 3)
		i := slices.IndexFunc(got, func(r *outmill.Record) bool { return r.MessageID == "full" })
		require.Equal(t, varied()["plain"][2].Metadata, got[i].Metadata)
		require.Equal(t, varied()["plain"][2].Payload, got[i].Payload)
	})
}

// Payloads that are text are readable as such, and others as hexadecimal numbers.
func TestReadable_Payloads(t *testing.T) {
	t.Parallel()
	_, store := ready(t)
	require.NoError(t, store.Append(t.Context(),
		&outmill.Record{Topic: "json", MessageID: "a", Payload: []byte(`{"name": "é"}`)},
		&outmill.Record{Topic: "bytes", MessageID: "b", Payload: []byte{0xff, 0}},
		&outmill.Record{Topic: "zero", MessageID: "c", Payload: []byte{'a', 0}}, &outmill.Record{Topic: "none", MessageID: "d"}))
	require.Equal(t, "é", valueOf[string](t, store.db, "SELECT payload::json ->> 'name' FROM outmill.readable WHERE topic = 'json'"))
	require.Equal(t, []string{`{"name": "é"}`, `\xff00`, `\x6100`, "none"},
		valueOf[[]string](t, store.db, "SELECT array_agg(coalesce(payload, 'none') ORDER BY message_id) FROM outmill.readable"))
}
