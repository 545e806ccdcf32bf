package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func TestList(t *testing.T) {
	t.Parallel()

	t.Run("list finds records by every filter", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			w.register(t, "billing", "orders")
			w.append(t, &outmill.Record{Topic: "orders", MessageID: "dead-one"})
			w.kill(t, "billing", "orders", "card 4711 was refused")
			w.append(t,
				&outmill.Record{Topic: "orders", MessageID: "with-key", Key: "k7"},
				&outmill.Record{Topic: "orders", MessageID: "with-correlation", CorrelationID: "c7"},
				&outmill.Record{Topic: "orders", MessageID: "with-tenant", TenantID: "t7"},
				&outmill.Record{Topic: "orders", MessageID: "with-contract", Metadata: map[string]string{
					outmill.MetadataContract: "shop.placed", outmill.MetadataContractVersion: "2",
				}},
				&outmill.Record{Topic: "payments", MessageID: "elsewhere"},
			)
			for _, tc := range []struct {
				args []string
				want []string
			}{
				{[]string{"--status", "dead"}, []string{"dead-one"}},
				{[]string{"--error", "4711"}, []string{"dead-one"}},
				{[]string{"--key", "k7"}, []string{"with-key"}},
				{[]string{"--correlation-id", "c7"}, []string{"with-correlation"}},
				{[]string{"--tenant", "t7"}, []string{"with-tenant"}},
				{[]string{"--contract", "shop.placed"}, []string{"with-contract"}},
				{[]string{"--contract-version", "2"}, []string{"with-contract"}},
				{[]string{"--contract", "shop.placed", "--contract-version", "1"}, nil},
				{[]string{"--message-id", "elsewhere"}, []string{"elsewhere"}},
				{[]string{"--topic", "payments"}, []string{"elsewhere"}},
				{[]string{"--group", "billing", "--status", "pending", "--limit", "1"}, []string{"with-key"}},
				{[]string{"--group", "billing", "--key", "k8"}, nil},
				{[]string{"--older-than", "1h"}, nil},
				{[]string{"--newer-than", "1d", "--key", "k7"}, []string{"with-key"}},
			} {
				var got []string
				for _, r := range okJSON[listReport](t, append([]string{"list", w.url}, tc.args...)...).Records {
					got = append(got, r.MessageID)
				}
				require.Equal(t, tc.want, got, tc.args)
			}
			require.Equal(t, "No record matches.\n", ok(t, "list", w.url, "--key", "nobody"))
		})
	})

	t.Run("a list continues behind its last record", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.append(t, orders(5)...)
		var seen []string
		after := []string{}
		for {
			page := okJSON[listReport](t, append([]string{"list", w.url, "--limit", "2"}, after...)...)
			for _, r := range page.Records {
				seen = append(seen, r.ID)
			}
			if page.Done {
				break
			}
			after = []string{"--after", page.Next}
		}
		require.Len(t, seen, 5)
		require.IsIncreasing(t, seen)
		got := tool(t, "list", w.url, "--limit", "2")
		require.Contains(t, got.stderr, "--after "+seen[1])
	})

	t.Run("payloads are shown only where they are asked for", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		records := append(orders(1), &outmill.Record{Topic: "orders", Payload: []byte{0xff, 0x1b}})
		w.append(t, records...)
		id := records[0].ID.String()
		for _, args := range [][]string{{"list", w.url}, {"list", w.url, "-o", "json"}, {"show", w.url, id}, {"show", w.url, id, "-o", "json"}} {
			require.NotContains(t, ok(t, args...), "S3CRET", args)
			require.Contains(t, ok(t, append(args, "--payload")...), "S3CRET", args)
		}
		require.Equal(t, `{"secret":"S3CRET"}`, *okJSON[recordView](t, "show", w.url, id, "--payload").Payload)
		binaryOne := okJSON[recordView](t, "show", w.url, records[1].ID.String(), "--payload")
		require.Nil(t, binaryOne.Payload)
		require.Equal(t, []byte{0xff, 0x1b}, binaryOne.PayloadBase64)
		require.Contains(t, ok(t, "show", w.url, records[1].ID.String(), "--payload"), `"\xff\x1b"`)
	})

	t.Run("a nil payload is told from an empty one", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			none, empty := &outmill.Record{Topic: "orders"}, &outmill.Record{Topic: "orders", Payload: []byte{}}
			w.append(t, none, empty)
			require.Regexp(t, `(?m)^payload +nil$`, ok(t, "show", w.url, none.ID.String()))
			require.Regexp(t, `(?m)^payload +0 bytes$`, ok(t, "show", w.url, empty.ID.String()))
			require.Regexp(t, `(?s) -\n.* ""\n`, ok(t, "list", w.url, "--payload"))
			for _, args := range [][]string{{}, {"--payload"}} {
				require.True(t, okJSON[recordView](t, append([]string{"show", w.url, none.ID.String()}, args...)...).PayloadNil)
				require.False(t, okJSON[recordView](t, append([]string{"show", w.url, empty.ID.String()}, args...)...).PayloadNil)
			}
			require.Nil(t, okJSON[recordView](t, "show", w.url, none.ID.String(), "--payload").Payload)
			require.Empty(t, *okJSON[recordView](t, "show", w.url, empty.ID.String(), "--payload").Payload)
			exported := tool(t, "publish", w.url, "--topic", "orders", "--payload", "", "--message-id", "published")
			require.Zero(t, exported.code, exported)
			require.False(t, okJSON[listReport](t, "list", w.url, "--message-id", "published").Records[0].PayloadNil)
		})
	})

	t.Run("show has all fields of a record", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			w.register(t, "billing", "orders")
			record := &outmill.Record{
				Topic: "orders", MessageID: "m1", Key: "k1", CorrelationID: "c1", CausationID: "u1", TenantID: "t1",
				Metadata: map[string]string{"name": "order.placed"}, Payload: []byte("1234"),
			}
			w.append(t, record)
			w.kill(t, "billing", "orders", "no such customer")
			text := ok(t, "show", w.url, record.ID.String())
			for name, value := range map[string]string{
				"id": record.ID.String(), "message id": "m1", "group": "billing", "topic": "orders", "key": "k1", "status": "dead",
				"last error": "no such customer", "correlation id": "c1", "causation id": "u1", "tenant": "t1",
				"metadata": "name=order.placed", "payload": "4 bytes", "claims": "1",
			} {
				require.Regexp(t, `(?m)^`+name+` +`+value+`$`, text)
			}
			view := okJSON[recordView](t, "show", w.url, record.ID.String())
			require.Equal(t, "dead", view.Status)
			require.WithinDuration(t, time.Now(), *view.CreatedAt, time.Minute)
		})
	})

	t.Run("filters and ids that make no sense are refused by name", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		for want, args := range map[string][]string{
			"--status":            {"list", w.url, "--status", "failed"},
			"--contract-version":  {"list", w.url, "--contract-version", "-1"},
			"--after":             {"list", w.url, "--after", "7"},
			"--older-than":        {"list", w.url, "--older-than", "yesterday"},
			"--newer-than":        {"list", w.url, "--newer-than", "-1h"},
			"--limit":             {"list", w.url, "--limit", "0"},
			"no id of a record":   {"show", w.url, "7"},
			"the id of one recor": {"show", w.url},
		} {
			got := tool(t, args...)
			require.Equal(t, exitUsage, got.code, args)
			require.Contains(t, got.stderr, want)
		}
	})

	t.Run("a record that is not there is a failure", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		got := tool(t, "show", w.url, outmill.NewWorkItemID().String())
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, outmill.ErrNotFound.Error())
	})
}

func TestColumns(t *testing.T) {
	t.Parallel()

	t.Run("each column of a table is a field of the JSON, by the rule on the page of the tool", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		require.NoError(t, w.RegisterGroup(t.Context(), outmill.Registration{TTL: time.Hour, Worker: "test:1"}))
		w.parked(t, "k", 2)
		id := w.parked(t, "edited", 1).ID.String()
		w.append(t, orders(1)...)
		ok(t, "edit", w.url, id, "--set", "by=ann")
		ok(t, "requeue", w.url, "--key", "nobody")
		others := map[string]string{
			"AGE": "created_at", "ERROR": "last_error", "DUE": "pending", "WHO": "actor", "RECORDS": "count", "WHAT": "ids", "SEEN": "seen_at",
			"EXPIRES": "expires_at", "TOPICS": "topics",
		}
		for _, args := range [][]string{
			{"list", w.url, "--payload"}, {"dead", w.url, "--payload"}, {"status", w.url}, {"audit", w.url}, {"groups", "list", w.url},
		} {
			header, _, _ := strings.Cut(ok(t, args...), "\n")
			text := ok(t, append(args, "-o", "json")...)
			for _, column := range regexp.MustCompile(` {2,}`).Split(header, -1) {
				field, has := others[column]
				if !has {
					field = strings.ToLower(strings.ReplaceAll(column, " ", "_"))
				}
				require.Contains(t, text, `"`+field+`"`, args)
			}
		}
	})
}
