//go:build unix && !race

package dashboard_test

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/dashboard"
	"github.com/outmill/outmill/internal/testenv"
)

// goal is how much time of the processor the first answer of a page takes, the least of several
// tries. A page that reads all records takes seconds.
const goal = 50 * time.Millisecond

// used is the time of the processor that this process has used. Unlike the time on the wall, it
// does not depend much on what else the machine does. The store works in this process, too.
func used(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// TestCost_Million runs alone, because it measures the process.
func TestCost_Million(t *testing.T) {
	testenv.Unraced(t, "the pages of a store in which a million records wait")

	t.Run("with a million records waiting the first answer of each page is quick", func(t *testing.T) {
		visit(t, newSQLite(t), func() time.Duration { return used(t) }, goal)
	})
}

// TestCostOfServers_Million measures the time on the wall, because the store works in another process. That
// time depends on what else the machine does, so the test only refuses what a page takes that reads all
// records. docs/dashboard.md has the times on a quiet machine.
func TestCostOfServers_Million(t *testing.T) {
	testenv.Unraced(t, "the pages of a server in which a million records wait")
	began := time.Now()
	clock := func() time.Duration { return time.Since(began) }

	t.Run("with a million records waiting in PostgreSQL no page reads all of them", func(t *testing.T) {
		visit(t, newPostgres(t), clock, 10*goal)
	})

	t.Run("with a million records waiting in MongoDB no page reads all of them", func(t *testing.T) {
		visit(t, newMongo(t), clock, 10*goal)
	})
}

// visit lets a million records wait, and measures the first answer of each page.
func visit(t *testing.T, store outmill.Store, clock func() time.Duration, limit time.Duration) {
	t.Helper()
	// Each page asks the store itself.
	board, err := dashboard.New(store, dashboard.Config{
		User: func(*http.Request) string { return "ann" }, Every: time.Nanosecond, AllowChanges: true, ShowErrors: true}, nil)
	require.NoError(t, err)
	s := newSite(t, store, dashboard.Config{})
	const topics, batch = 10, 20_000
	s.register("billing", "topic *")
	s.append(&outmill.Record{Topic: "topic 0", MessageID: "dead"})
	dead := s.kill("billing", "topic 0", "refused")[0]
	var last *outmill.Record
	for n := 0; n < 1_000_000; n += batch {
		records := make([]*outmill.Record, batch)
		for i := range records {
			records[i] = &outmill.Record{
				Topic: fmt.Sprintf("topic %d", i%topics), Key: fmt.Sprintf("key %d", (n+i)%10_000), MessageID: fmt.Sprintf("m-%d", n+i),
			}
		}
		s.append(records...)
		last = records[batch-1]
	}
	for name, path := range map[string]string{
		"overview": "/", "topic": "/topic?topic=topic+1&group=billing", "dead letters": "/records?status=dead", "search": "/records",
		"search of a topic": "/records?topic=topic+1&group=billing&status=pending", "record": "/record?id=" + dead.ID.String(),
		"last record": "/record?id=" + last.ID.String(), "find": "/find", "groups": "/groups",
		"pauses": "/pauses", "joins": "/joins", "sagas": "/sagas",
		"stores": "/stores", "search that finds nothing": "/records?message=nobody", "find a message": "/find?id=m-7",
	} {
		best, body := time.Hour, 0
		for range 10 {
			began := clock()
			got := serveLocal(t, board, http.MethodGet, path)
			best, body = min(best, clock()-began), got.Body.Len()
			require.Equal(t, http.StatusOK, got.Code, "%s: %s", path, got.Body)
		}
		t.Logf("%-26s %8.1f ms %6d bytes", name, float64(best.Microseconds())/1000, body)
		require.Less(t, best, limit, path)
	}
}
