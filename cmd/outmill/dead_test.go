package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// parked parks a key of n records, and returns the first one as the store has it.
func (w world) parked(t *testing.T, key string, n int) *outmill.Record {
	t.Helper()
	records := orders(n)
	for i, r := range records {
		r.MessageID, r.Key, r.Metadata = fmt.Sprintf("%s-%d", key, i), key, map[string]string{"version": "1"}
	}
	w.append(t, records...)
	req := outmill.ClaimRequest{
		Owner: outmill.NewOwnerToken(), Limit: 1, Lease: time.Minute, Order: outmill.OrderKey, KeyPolicy: outmill.KeyPark,
	}
	found, err := w.Claim(t.Context(), req)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.NoError(t, w.Fail(t.Context(), []outmill.Settlement{{Lease: found[0].Lease(), Err: "bad order", Park: true}}))
	// A store may leave the later ones to the next claim.
	rest, err := w.Claim(t.Context(), req)
	require.NoError(t, err)
	require.Empty(t, rest)
	return w.get(t, found[0].ID)
}

func (w world) get(t *testing.T, id outmill.WorkItemID) *outmill.Record {
	t.Helper()
	r, err := w.Get(t.Context(), id)
	require.NoError(t, err)
	return r
}

// delivered are the message ids that a reader in order gets, in their order.
func (w world) delivered(t *testing.T) (names []string) {
	t.Helper()
	found, err := w.Claim(t.Context(), outmill.ClaimRequest{
		Owner: outmill.NewOwnerToken(), Limit: 100, Lease: time.Minute, Order: outmill.OrderKey, KeyPolicy: outmill.KeyPark,
	})
	require.NoError(t, err)
	for _, r := range found {
		names = append(names, r.MessageID)
	}
	return names
}

func TestDead(t *testing.T) {
	t.Parallel()

	t.Run("dead lists the head of each key with its error and what waits behind it", func(t *testing.T) {
		t.Parallel()
		onThreeStores(t, func(t *testing.T, w world) {
			w.register(t, "", "orders")
			head := w.parked(t, "k", 3)
			other := w.parked(t, "other", 1)
			got := okJSON[deadReport](t, "dead", w.url, "--topic", "orders")
			require.True(t, got.Done)
			require.Len(t, got.Letters, 2)
			waiting := map[string]int{}
			for _, l := range got.Letters {
				waiting[l.ID] = l.Waiting
				require.Equal(t, "bad order", l.LastError)
				require.Nil(t, l.Payload)
			}
			require.Equal(t, map[string]int{head.ID.String(): 2, other.ID.String(): 0}, waiting)
			require.Contains(t, ok(t, "dead", w.url, "--key", "k"), head.ID.String())
			require.NotContains(t, ok(t, "dead", w.url, "--key", "k"), other.ID.String())
			require.Equal(t, "No dead record matches.\n", ok(t, "dead", w.url, "--error", "timeout"))
		})
	})

	t.Run("dead goes on behind the last record of a page", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.register(t, "", "orders")
		for _, key := range []string{"a", "b", "c"} {
			w.parked(t, key, 2)
		}
		first := okJSON[deadReport](t, "dead", w.url, "--limit", "2")
		require.Len(t, first.Letters, 2)
		require.False(t, first.Done)
		second := okJSON[deadReport](t, "dead", w.url, "--after", first.Next)
		require.Len(t, second.Letters, 1)
		require.Equal(t, exitUsage, tool(t, "dead", w.url, "--limit", "0").code)
	})
}

func TestEdit(t *testing.T) {
	t.Parallel()

	t.Run("edit replaces the payload and the metadata, and requeues the key", func(t *testing.T) {
		t.Parallel()
		onThreeStores(t, func(t *testing.T, w world) {
			w.register(t, "", "orders")
			head := w.parked(t, "k", 3)
			got := toolWith(t, "fixed", "edit", w.url, head.ID.String(), "--payload-file", "-",
				"--set", "by=ann", "--remove", "version", "--requeue")
			require.Equal(t, exitOK, got.code, got.stderr)
			require.Contains(t, got.stdout, "3 records requeued.")
			require.Regexp(t, `(?m)^status +pending$`, got.stdout, "the record is shown as it is after the requeue")
			require.NotContains(t, got.stdout, "fixed")
			after := w.get(t, head.ID)
			require.Equal(t, "fixed", string(after.Payload))
			require.Equal(t, map[string]string{"by": "ann"}, after.Metadata)
			require.Equal(t, []string{"k-0", "k-1", "k-2"}, w.delivered(t))
		})
	})

	t.Run("edit leaves the record dead without --requeue, and changes nothing with --dry-run", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.register(t, "", "orders")
		head := w.parked(t, "k", 1)
		id := head.ID.String()
		preview := okJSON[edited](t, "edit", w.url, id, "--payload-file", writeFile(t, "fixed"), "--dry-run", "--payload")
		require.Equal(t, "fixed", *preview.Record.Payload)
		require.Equal(t, head, w.get(t, head.ID))
		require.Contains(t, ok(t, "edit", w.url, id, "--payload-file", writeFile(t, "fixed")), "stays dead")
		require.Equal(t, outmill.StatusDead, w.get(t, head.ID).Status)
	})

	t.Run("edit with the fingerprint of show refuses a record that has changed since", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.register(t, "", "orders")
		id := w.parked(t, "k", 1).ID.String()
		seen := okJSON[recordView](t, "show", w.url, id).Fingerprint
		require.Contains(t, ok(t, "show", w.url, id), seen)
		ok(t, "edit", w.url, id, "--seen", seen, "--set", "version=2")
		got := tool(t, "edit", w.url, id, "--seen", seen, "--set", "version=3")
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, "read it again")
		got = tool(t, "edit", w.url, id, "--seen", "wrong", "--set", "version=3")
		require.Equal(t, exitUsage, got.code)
		require.Contains(t, got.stderr, `--seen is "wrong": want the fingerprint of the record, as outmill show prints it`)
	})

	t.Run("an edit that makes no sense is refused by name", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.register(t, "", "orders")
		head := w.parked(t, "k", 1)
		for want, args := range map[string][]string{
			"--payload-file": {},
			"NAME=VALUE":     {"--set", "version"},
			"no metadata":    {"--remove", "unknown"},
			"outmill_key":    {"--set", outmill.MetadataKey + "=other"},
		} {
			got := tool(t, append([]string{"edit", w.url, head.ID.String()}, args...)...)
			require.NotEqual(t, exitOK, got.code, args)
			require.Contains(t, got.stderr, want)
		}
		require.Equal(t, head, w.get(t, head.ID))
	})
}

func TestSkip(t *testing.T) {
	t.Parallel()

	t.Run("skip deletes the head and releases the others in order", func(t *testing.T) {
		t.Parallel()
		onThreeStores(t, func(t *testing.T, w world) {
			w.register(t, "", "orders")
			head := w.parked(t, "k", 3)
			id := head.ID.String()
			require.Equal(t, "The record would be deleted, and 2 records behind it released.\n", ok(t, "skip", w.url, id, "--dry-run"))
			require.Equal(t, outmill.StatusDead, w.get(t, head.ID).Status)
			require.Equal(t, skipped{Action: "skip", ID: id, Released: 2, Done: true}, okJSON[skipped](t, "skip", w.url, id))
			require.Equal(t, []string{"k-1", "k-2"}, w.delivered(t))
			require.Equal(t, exitFailed, tool(t, "skip", w.url, id).code)
		})
	})

	t.Run("more than a hundred waiting records need a yes, and without a terminal the flag", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.register(t, "", "orders")
		head := w.parked(t, "k", 150)
		got := tool(t, "skip", w.url, head.ID.String())
		require.Equal(t, exitUsage, got.code)
		require.Contains(t, got.stderr, "149 records")
		require.Equal(t, outmill.StatusDead, w.get(t, head.ID).Status)
		require.Contains(t, ok(t, "skip", w.url, head.ID.String(), "--yes"), "149 records released")
	})

	t.Run("skip refuses a record that is not dead", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.register(t, "", "orders")
		records := orders(1)
		w.append(t, records...)
		got := tool(t, "skip", w.url, records[0].ID.String())
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, "pending")
		require.Equal(t, outmill.StatusPending, w.get(t, records[0].ID).Status)
	})
}

func TestEarlierError(t *testing.T) {
	t.Parallel()

	t.Run("the error of a record that a skip or a requeue brought back is shown as one from before", func(t *testing.T) {
		t.Parallel()
		onThreeStores(t, func(t *testing.T, w world) {
			w.register(t, "", "orders")
			const note = "from before a requeue or a skip brought"
			skipped, requeued := w.parked(t, "skipped", 2), w.parked(t, "requeued", 2)
			behind := func(key string) string {
				for _, r := range okJSON[listReport](t, "list", w.url, "--key", key).Records {
					if r.MessageID == key+"-1" {
						return r.ID
					}
				}
				return ""
			}
			for head, id := range map[*outmill.Record]string{skipped: behind("skipped"), requeued: behind("requeued")} {
				require.NotContains(t, ok(t, "show", w.url, id)+ok(t, "why", w.url, id)+ok(t, "list", w.url), note, "it is parked now")
				ok(t, map[bool]string{true: "skip", false: "requeue"}[head == skipped], w.url, head.ID.String())
				require.Regexp(t, `(?m)^last error +parked: .* \(`+note+` the record back\)$`, ok(t, "show", w.url, id))
				require.Regexp(t, `Its last error is `+note+` it back: "parked: .*"\.`, ok(t, "why", w.url, id))
				require.Regexp(t, id+` .* \(earlier\) parked: `, ok(t, "list", w.url))
				require.True(t, okJSON[recordView](t, "show", w.url, id).EarlierError)
			}
			w.kill(t, "", "orders", "timeout")
			text := ok(t, "list", w.url) + ok(t, "why", w.url, behind("skipped"))
			require.NotContains(t, text, "earlier")
			require.NotContains(t, text, note)
		})
	})
}

func TestAudit(t *testing.T) {
	t.Parallel()

	t.Run("audit shows who changed what, the newest first", func(t *testing.T) {
		t.Parallel()
		onThreeStores(t, func(t *testing.T, w world) {
			require.Equal(t, "No operator has changed records.\n", ok(t, "audit", w.url))
			w.register(t, "", "orders")
			head := w.parked(t, "k", 3)
			id := head.ID.String()
			ok(t, "edit", w.url, id, "--set", "version=secret", "--by", "ann")
			ok(t, "requeue", w.url, "--topic", "orders", "--by", "bob")
			ok(t, "delete", w.url, id)
			got := okJSON[auditReport](t, "audit", w.url)
			require.Len(t, got.Entries, 3)
			for i, want := range []entryView{
				{Actor: operator(), Action: "delete", Count: 1},
				{Actor: "bob", Action: "requeue", Count: 3},
				{Actor: "ann", Action: "edit", Count: 1},
			} {
				e := got.Entries[i]
				require.Equal(t, want, entryView{Actor: e.Actor, Action: e.Action, Count: e.Count})
			}
			require.Equal(t, map[string]string{"topic": "orders", "status": "dead"}, got.Entries[1].Filter)
			require.Equal(t, storekit.FingerprintOf(head), got.Entries[2].Before.Fingerprint)
			text := ok(t, "audit", w.url)
			require.Contains(t, text, "ann")
			require.Contains(t, text, "topic=orders")
			require.NotContains(t, text, "secret")
			first := okJSON[auditReport](t, "audit", w.url, "--limit", "2")
			require.Equal(t, got.Entries[2:], okJSON[auditReport](t, "audit", w.url, "--after", first.Next).Entries)
		})
	})

	t.Run("one command leaves one entry, however many steps it takes", func(t *testing.T) {
		t.Parallel()
		onThreeStores(t, func(t *testing.T, w world) {
			w.register(t, "", "orders")
			w.append(t, orders(30)...)
			w.kill(t, "", "orders", "timeout")
			ok(t, "requeue", w.url, "--rate", "200", "--by", "ann")
			w.kill(t, "", "orders", "timeout")
			ok(t, "delete", w.url, "--status", "dead", "--rate", "200", "--by", "bob")
			head := w.parked(t, "k", 3)
			ok(t, "edit", w.url, head.ID.String(), "--set", "version=2", "--requeue", "--by", "cid")
			var got []entryView
			for _, e := range okJSON[auditReport](t, "audit", w.url).Entries {
				got = append(got, entryView{Actor: e.Actor, Action: e.Action, Count: e.Count})
			}
			require.Equal(t, []entryView{
				{Actor: "cid", Action: "edit, requeue", Count: 3},
				{Actor: "bob", Action: "delete", Count: 30},
				{Actor: "ann", Action: "requeue", Count: 30},
			}, got)
		})
	})
}
