package main

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

// nowhere is the address of a broker that is not there: nothing listens at port 1.
const nowhere = "kafka://127.0.0.1:1"

// groupNames returns the names of the groups of the store.
func (w world) groupNames(t *testing.T) (names []string) {
	t.Helper()
	groups, err := w.Groups(t.Context())
	require.NoError(t, err)
	for _, g := range groups {
		names = append(names, g.Group)
	}
	return names
}

// waitingAndRead leaves three invoices without a group, and a group that reads orders.
func (w world) waitingAndRead(t *testing.T) {
	t.Helper()
	for range 3 {
		w.append(t, &outmill.Record{Topic: "invoices"})
	}
	w.register(t, "billing", "orders")
}

func TestForward_Trial(t *testing.T) {
	t.Parallel()

	t.Run("a trial with a wrong address that is interrupted takes its new group back and loses nothing", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			w.waitingAndRead(t)
			d := startDaemon(t, nil, w.url, "--to", nowhere)
			d.await(t, `has not answered`)
			w.append(t, orders(3)...)
			w.append(t, &outmill.Record{Topic: "invoices"})
			require.Equal(t, []string{"billing", "forwarder"}, w.groupNames(t))
			// While the group holds, a store may leave a message with those that wait.
			waiting := w.statusOf(t, "", "invoices").Pending
			require.Contains(t, []int{3, 4}, waiting)
			require.Equal(t, exitOK, d.end(t, syscall.SIGINT), d.all.String())
			for _, part := range []string{"group=forwarder", fmt.Sprint("given_back=", 4-waiting), "deleted=3"} {
				require.Regexp(t, `has dropped it again.* `+part, d.all.String())
			}
			require.Equal(t, []string{"billing"}, w.groupNames(t))
			require.Equal(t, 4, w.statusOf(t, "", "invoices").Pending)
			require.Equal(t, 3, w.statusOf(t, "billing", "orders").Pending)
		})
	})

	t.Run("a service whose broker was away from the start keeps its group when it is stopped", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		d := startDaemon(t, nil, w.url, "--to", nowhere)
		d.await(t, `has not answered`)
		w.append(t, orders(3)...)
		require.Equal(t, exitOK, d.stop(t), d.all.String())
		require.Equal(t, []string{"forwarder"}, w.groupNames(t))
		require.Equal(t, 3, w.statusOf(t, "forwarder", "orders").Pending)
	})

	t.Run("a trial with --once takes its new group back, and leaves one that was there", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.append(t, orders(3)...)
		got := tool(t, "forward", w.url, "--to", nowhere+"?delivery_timeout=2s", "--once")
		require.Equal(t, exitFailed, got.code, got.stderr)
		require.Empty(t, w.groupNames(t))
		require.Equal(t, 3, w.statusOf(t, "", "orders").Pending)

		w.register(t, "forwarder")
		got = tool(t, "forward", w.url, "--to", nowhere+"?delivery_timeout=2s", "--once")
		require.Equal(t, exitFailed, got.code, got.stderr)
		require.Equal(t, []string{"forwarder"}, w.groupNames(t))
		require.Equal(t, 3, w.statusOf(t, "forwarder", "orders").Pending)
	})

	t.Run("a trial that has reached its broker keeps its group", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.append(t, orders(3)...)
		d := startDaemon(t, nil, w.url, "--to", "memory:")
		d.await(t, `publishes in batches`)
		require.Eventually(t, func() bool {
			counts, err := w.Stats(t.Context(), 0)
			return err == nil && len(counts) == 0
		}, time.Minute, 20*time.Millisecond)
		require.Equal(t, exitOK, d.end(t, syscall.SIGINT), d.all.String())
		require.Equal(t, []string{"forwarder"}, w.groupNames(t))
	})

	t.Run("a trial leaves a group that another forwarder has registered since", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		d := startDaemon(t, nil, w.url, "--to", nowhere)
		d.await(t, `has not answered`)
		require.NoError(t, w.RegisterGroup(t.Context(), outmill.Registration{Group: "forwarder", Worker: "another:1", Hold: true}))
		require.Equal(t, exitOK, d.end(t, syscall.SIGINT), d.all.String())
		require.Equal(t, []string{"forwarder"}, w.groupNames(t))
	})
}
