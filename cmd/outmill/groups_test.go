package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func TestGroups(t *testing.T) {
	t.Parallel()

	t.Run("list shows the groups with their topics and workers", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			require.Equal(t, "No group reads this store.\n", ok(t, "groups", "list", w.url))
			w.register(t, "audit")
			w.register(t, "billing", "orders", "payments.*")
			text := ok(t, "groups", "list", w.url)
			require.Regexp(t, `(?m)^GROUP +TOPICS +WORKERS +SEEN +EXPIRES$`, text)
			require.Regexp(t, `(?m)^audit +all +1 +\S+ ago +-$`, text)
			require.Regexp(t, `(?m)^billing +orders, payments\.\* +1 +\S+ ago +-$`, text)
			groups := okJSON[[]groupView](t, "groups", "list", w.url)
			require.Len(t, groups, 2)
			require.Equal(t, "test:1", groups[1].Workers[0].Name)
			require.NotNil(t, groups[1].SeenAt)
		})
	})

	t.Run("list shows the problems that workers report", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			problems := map[string]string{"": "the broker is away\n", "payments": "no such topic"}
			require.NoError(t, w.RegisterGroup(t.Context(), outmill.Registration{Group: "audit", Worker: "host:1", Problems: problems}))
			text := ok(t, "groups", "list", w.url)
			require.Regexp(t, `(?m)^Problem of audit: worker host:1 reported \S+ ago: the broker is away`, text)
			require.Regexp(t, `(?m)^Problem of audit, topic payments: worker host:1 reported \S+ ago: no such topic$`, text)
			require.Equal(t, problems, okJSON[[]groupView](t, "groups", "list", w.url)[0].Workers[0].Problems)
		})
	})

	t.Run("list shows the calls that fail in workers", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			call := outmill.FailingCall{
				Call: "settle", Part: "ack", Since: time.Now().Add(-time.Hour).UTC().Truncate(time.Second), Times: 12, Err: "the disk is full\n",
			}
			reg := outmill.Registration{Group: "audit", Worker: "host:1", Failing: []outmill.FailingCall{call}}
			require.NoError(t, w.RegisterGroup(t.Context(), reg))
			text := ok(t, "groups", "list", w.url)
			require.Regexp(t, `(?m)^Problem of audit: worker host:1 reported \S+ ago: settle \(ack\) has failed for 1h\S*, 12 times: the`, text)
			require.Equal(t, []outmill.FailingCall{call}, okJSON[[]groupView](t, "groups", "list", w.url)[0].Workers[0].Failing)
		})
	})

	t.Run("list names workers that read a topic in different orders", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			reads := outmill.Reading{Topics: outmill.Topics{Include: []string{"orders"}}, Order: outmill.OrderKey, KeyPolicy: outmill.KeyPark}
			for name, order := range map[string]outmill.Order{"host:1": outmill.OrderKey, "host:2": outmill.OrderNone} {
				reads.Order = order
				reg := outmill.Registration{Group: "audit", Worker: name, Reads: []outmill.Reading{reads}}
				require.NoError(t, w.RegisterGroup(t.Context(), reg))
			}
			text := ok(t, "groups", "list", w.url)
			require.Contains(t, text, "\nProblem of audit: Workers read \"orders\" differently: "+
				"\"host:2\" without an order; \"host:1\" in the order of keys (park).")
			require.Contains(t, text, "Give all readers of the group the same Order and KeyPolicy")
			views := map[string][]readingView{}
			for _, worker := range okJSON[[]groupView](t, "groups", "list", w.url)[0].Workers {
				views[worker.Name] = worker.Reads
			}
			require.Equal(t, map[string][]readingView{
				"host:1": {{Topics: "orders", Order: "key", KeyPolicy: "park"}}, "host:2": {{Topics: "orders", Order: "none"}},
			}, views)
		})
	})

	t.Run("drop removes one group with its records, after a yes", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			w.register(t, "audit", "orders")
			w.register(t, "billing", "orders")
			w.append(t, orders(3)...)
			got := tool(t, "groups", "drop", w.url, "audit")
			require.Equal(t, exitUsage, got.code)
			require.Contains(t, got.stderr, `drops the group "audit"`)
			require.Contains(t, got.stderr, "it gives back 0 to the first group that registers for their topic, and deletes 3: "+
				"3 not delivered but of topics that another group reads, 0 dead, 0 processed.")
			require.Equal(t, 3, w.statusOf(t, "audit", "orders").Pending)
			require.Equal(t, "The group \"audit\" is dropped: 0 records given back, 3 records deleted.\n",
				ok(t, "groups", "drop", w.url, "audit", "--yes"))
			require.Zero(t, w.statusOf(t, "audit", "orders").Pending)
			require.Equal(t, 3, w.statusOf(t, "billing", "orders").Pending)
		})
	})

	t.Run("drop gives back what no other group reads, as its question says", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			w.register(t, "audit")
			w.register(t, "billing", "orders")
			w.append(t, orders(3)...)
			w.append(t, &outmill.Record{Topic: "invoices"}, &outmill.Record{Topic: "invoices"})
			require.Contains(t, tool(t, "groups", "drop", w.url, "audit").stderr, "it gives back 2 to the first group that registers for "+
				"their topic, and deletes 3: 3 not delivered but of topics that another group reads, 0 dead, 0 processed.")
			require.Equal(t, "The group \"audit\" is dropped: 2 records given back, 3 records deleted.\n",
				ok(t, "groups", "drop", w.url, "audit", "--yes"))
			require.Equal(t, 2, w.statusOf(t, "", "invoices").Pending)
		})
	})

	t.Run("drop without the name of a group is refused", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		for _, args := range [][]string{{}, {w.url, ""}, {w.url, "a", "b"}} {
			got := tool(t, append([]string{"groups", "drop", "--yes"}, args...)...)
			require.Equal(t, exitUsage, got.code, "%v: %s", args, got.stderr)
		}
	})

	t.Run("pause stops a topic, list names the pause, and resume continues it", func(t *testing.T) {
		t.Parallel()
		onStores(t, pauseAndResume)
	})

	t.Run("list shows a pause that concerns no group yet", func(t *testing.T) {
		t.Parallel()
		onThreeStores(t, func(t *testing.T, w world) {
			ok(t, "groups", "pause", w.url, "--topic", "orders", "--by", "ann", "--reason", "not before noon")
			text := ok(t, "groups", "list", w.url)
			require.Regexp(t, `(?m)^Paused, for no group yet: topic "orders" by ann since \S+: not before noon$`, text)
			w.register(t, "audit", "orders")
			text = ok(t, "groups", "list", w.url)
			require.Contains(t, text, "Paused for audit: ")
			require.NotContains(t, text, "for no group")
		})
	})

	t.Run("pause and resume without a scope are refused", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		for _, args := range [][]string{{"pause", w.url}, {"resume", w.url}, {"pause", w.url, "--key", "7"}} {
			got := tool(t, append([]string{"groups"}, args...)...)
			require.Equal(t, exitUsage, got.code, "%v: %s", args, got.stderr)
			require.Contains(t, got.stderr, "--topic")
		}
	})
}

func pauseAndResume(t *testing.T, w world) {
	t.Helper()
	w.register(t, "audit", "orders")
	w.append(t, orders(3)...)
	require.Equal(t, "Paused: topic \"orders\".\n",
		ok(t, "groups", "pause", w.url, "--topic", "orders", "--by", "ann", "--reason", "the warehouse is down"))
	require.Regexp(t, `(?m)^Paused for audit: topic "orders" by ann since \S+: the warehouse is down$`, ok(t, "groups", "list", w.url))
	groups := okJSON[[]groupView](t, "groups", "list", w.url)
	require.Len(t, groups[0].Pauses, 1)
	claim := func() int {
		found, err := w.Claim(t.Context(), outmill.ClaimRequest{
			Owner: outmill.NewOwnerToken(), Group: "audit", Topics: outmill.Topics{Include: []string{"orders"}}, Limit: 10, Lease: time.Minute,
		})
		require.NoError(t, err)
		return len(found)
	}
	require.Zero(t, claim())
	got := tool(t, "groups", "resume", w.url, "--group", "audit")
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.stderr, `there is no pause of group "audit"; the pauses are:`)
	require.Contains(t, got.stderr, `topic "orders" by ann`)
	require.Equal(t, "Resumed: topic \"orders\".\n", ok(t, "groups", "resume", w.url, "--topic", "orders"))
	require.NotContains(t, ok(t, "groups", "list", w.url), "Paused")
	require.Equal(t, 3, claim())
}
