package main

import (
	"bufio"
	"fmt"
	"math"
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/internal/testenv/proxy"
)

func TestStatus(t *testing.T) {
	t.Parallel()

	t.Run("status counts the records of each group and topic", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			w.append(t, &outmill.Record{Topic: "unread"})
			w.register(t, "billing", "orders")
			w.append(t, orders(3)...)
			require.Equal(t, 3, w.kill(t, "billing", "orders", "no such customer"))
			w.append(t, orders(2)...)
			w.append(t, &outmill.Record{Topic: "orders", Delay: time.Hour})

			require.Regexp(t, `(?m)^GROUP +TOPIC +DUE +DELAYED +LEASED +DEAD +PROCESSED +OLDEST DUE$`, ok(t, "status", w.url))
			text := ok(t, "status", w.url)
			require.Regexp(t, `(?m)^\(no group\) +unread +1 +0 +0 +0 +0 +\d+\w+$`, text)
			require.Regexp(t, `(?m)^billing +orders +2 +1 +0 +3 +0 +\d+\w+$`, text)

			report := okJSON[statusReport](t, "status", w.url)
			require.Len(t, report.Topics, 2)
			billing := report.Topics[1]
			require.Equal(t, []any{"billing", "orders", 3, 1, 0, 3},
				[]any{billing.Group, billing.Topic, billing.Pending, billing.Delayed, billing.Leased, billing.Dead})
			require.WithinDuration(t, time.Now(), *billing.OldestDue, time.Minute)
		})
	})

	t.Run("a record whose lease has ended is due, and each record is in one column", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			w.register(t, "billing", "orders")
			w.append(t, orders(5)...)
			w.append(t, &outmill.Record{Topic: "orders", Delay: time.Hour})
			claim := func(limit int, lease time.Duration) {
				got, err := w.Claim(t.Context(), outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Group: "billing",
					Topics: outmill.Topics{Include: []string{"orders"}}, Limit: limit, Lease: lease})
				require.NoError(t, err)
				require.Len(t, got, limit)
			}
			claim(2, time.Hour)
			claim(1, time.Millisecond)
			require.Eventually(t, func() bool {
				row := w.statusOf(t, "billing", "orders")
				require.Equal(t, 6, row.Pending+row.Leased+row.Dead+row.Processed)
				return row.Pending-row.Delayed == 3 && row.Delayed == 1 && row.Leased == 2
			}, time.Minute, 5*time.Millisecond)
			require.Regexp(t, `(?m)^billing +orders +3 +1 +2 +0 +0 +\d+\w+$`, ok(t, "status", w.url))
		})
	})

	t.Run("status names below the table what stands still", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			w.register(t, "billing", "orders")
			w.append(t, &outmill.Record{Topic: "orders", Key: "c-7"}, &outmill.Record{Topic: "orders", Key: "c-7"})
			require.NotContains(t, ok(t, "status", w.url), "\n\n")
			for _, delay := range []time.Duration{0, 0, time.Hour} {
				got, err := w.Claim(t.Context(), outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Group: "billing",
					Topics: outmill.Topics{Include: []string{"orders"}}, Limit: 1, Lease: time.Hour, Order: outmill.OrderKey})
				require.NoError(t, err)
				require.Len(t, got, 1)
				require.NoError(t, w.Abandon(t.Context(), []outmill.Settlement{{Lease: got[0].Lease(), Delay: delay, Err: "card refused"}}))
			}
			require.NoError(t, w.RegisterGroup(t.Context(), outmill.Registration{Group: "audit", Worker: "host:1"}))
			require.NoError(t, w.RegisterGroup(t.Context(), outmill.Registration{Group: "audit", Worker: "host:1", Stopped: true}))
			text := ok(t, "status", w.url)
			require.Regexp(t, `(?m)^fails_again: Key "c-7" of group "billing" .* 3 failed attempts.*card refused`, text)
			require.Regexp(t, `(?m)^group_unseen: Group "audit" has no worker: its last one, "host:1", stopped at `, text)
			require.Len(t, okJSON[statusReport](t, "status", w.url).Problems, 2)
			require.Regexp(t, `(?m)^audit +all +0 `, ok(t, "groups", "list", w.url), "no worker is counted")
		})
	})

	t.Run("status waits for PostgreSQL as often for 9 topics of 10 groups as for one", func(t *testing.T) {
		t.Parallel()
		database := postgrestest.Database(t)
		w := openWorld(t, database)
		w.register(t, "group-0", "*")
		w.append(t, &outmill.Record{Topic: "topic-0"})
		far, err := url.Parse(database)
		require.NoError(t, err)
		counting := proxy.New(t, far.Host)
		far.Host = counting.Addr()
		fewest := func() int {
			least := math.MaxInt
			for range 5 {
				before := counting.RoundTrips()
				require.Contains(t, ok(t, "status", far.String()), "topic-0")
				least = min(least, counting.RoundTrips()-before)
			}
			return least
		}
		one := fewest()
		for i := range 9 {
			w.register(t, fmt.Sprintf("group-%d", i+1), "*")
		}
		for i := range 9 {
			w.append(t, &outmill.Record{Topic: fmt.Sprintf("topic-%d", i)})
		}
		require.Contains(t, ok(t, "status", far.String()), "topic-8")
		// A server that answers before it has all of what a client sends at once counts once more. A round trip for each topic, or for
		// each group, would be 8 or 9 more.
		require.Less(t, fewest(), one+5)
	})

	t.Run("columns are aligned, and control characters of users do not reach the terminal", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.append(t, &outmill.Record{Topic: "a"}, &outmill.Record{Topic: "much longer \x1b[31mtopic"})
		lines := strings.Split(strings.TrimSpace(ok(t, "status", w.url)), "\n")
		require.Len(t, lines, 3)
		for _, line := range lines {
			require.NotContains(t, line, "\x1b")
			require.Len(t, line, len(lines[0]), line)
		}
	})

	t.Run("a count ends at the limit with a plus", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.append(t, orders(20)...)
		require.Regexp(t, `orders +5\+ +0 `, ok(t, "status", w.url, "--limit", "5"))
		require.Equal(t, exitUsage, tool(t, "status", w.url, "--limit", "0").code)
	})

	t.Run("with many topics a count ends earlier, unless the limit is set", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.append(t, orders(501)...)
		for i := range 199 {
			w.append(t, &outmill.Record{Topic: fmt.Sprintf("topic-%d", i)})
		}
		require.Regexp(t, `orders +200\+ +0 `, ok(t, "status", w.url))
		require.Regexp(t, `orders +501 +0 `, ok(t, "status", w.url, "--limit", "10000"))
		require.Equal(t, 200, okJSON[statusReport](t, "status", w.url).Limit)
	})

	t.Run("where delayed records fill the limit, the number of due ones is unknown", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		for range 6 {
			w.append(t, &outmill.Record{Topic: "orders", Delay: time.Hour})
		}
		w.append(t, orders(1)...)
		require.Regexp(t, `orders +\? +5\+ `, ok(t, "status", w.url, "--limit", "5"))
		require.Regexp(t, `orders +1 +6 `, ok(t, "status", w.url, "--limit", "8"))
	})

	t.Run("a store without records has a sentence in place of a table", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		require.Equal(t, w.url+" has no records.\n", ok(t, "status", w.url))
		require.Empty(t, okJSON[statusReport](t, "status", w.url).Topics)
	})

	t.Run("a store without a schema is a failure that names the remedy", func(t *testing.T) {
		t.Parallel()
		got := tool(t, "status", "sqlite:"+newFile(t))
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, "schema ensure")
	})

	t.Run("watch shows it again until it is interrupted, and then succeeds", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.append(t, orders(1)...)
		cmd := exec.CommandContext(t.Context(), binary, "status", w.url, "--watch", "--every", "100ms")
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(stdout)
		for want := range 3 {
			require.True(t, lines.Scan())
			require.Contains(t, lines.Text(), "GROUP")
			require.True(t, lines.Scan())
			require.Regexp(t, `orders +\d `, lines.Text(), want)
		}
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		for lines.Scan() {
		}
		require.NoError(t, cmd.Wait())
	})
}

func TestStatus_Watch(t *testing.T) {
	t.Parallel()

	t.Run("a database that fails for a while does not end the watch", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.append(t, orders(1)...)
		db := openDB(t, strings.TrimPrefix(w.url, "sqlite:"))
		rename := func(from, to string) {
			_, err := db.ExecContext(t.Context(), "ALTER TABLE "+from+" RENAME TO "+to)
			require.NoError(t, err)
		}
		cmd := exec.CommandContext(t.Context(), binary, "status", w.url, "--watch", "--every", "100ms")
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		stderr, err := cmd.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		shown, failed := bufio.NewScanner(stdout), bufio.NewScanner(stderr)
		require.True(t, shown.Scan(), "it shows the table")
		rename("outmill_records", "elsewhere")
		require.True(t, failed.Scan(), "it says what failed")
		require.Contains(t, failed.Text(), "outmill")
		rename("elsewhere", "outmill_records")
		for range 10 {
			require.True(t, shown.Scan(), "it shows the table again")
		}
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		for shown.Scan() {
		}
		for failed.Scan() {
		}
		require.NoError(t, cmd.Wait())
	})
}

func TestSchemaCommands(t *testing.T) {
	t.Parallel()

	t.Run("upgrade refuses a database without a schema and creates nothing", func(t *testing.T) {
		t.Parallel()
		file := newFile(t)
		require.Contains(t, tool(t, "schema", "upgrade", "sqlite:"+file).stderr, "does not exist")
		require.NoFileExists(t, file)
		require.NoError(t, openDB(t, file).PingContext(t.Context()))
		got := tool(t, "schema", "upgrade", "sqlite:"+file)
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, "has no schema to upgrade")
		require.Empty(t, ok(t, "schema", "print", "--from", "1", "sqlite:"+file))
		require.Equal(t, exitFailed, tool(t, "schema", "status", "sqlite:"+file).code)
	})

	t.Run("ensure makes the schema, status then succeeds, and upgrade has nothing to do", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			require.Contains(t, ok(t, "schema", "ensure", w.url), "is up to date")
			require.Contains(t, ok(t, "schema", "status", w.url), "fits this version of outmill")
			require.Contains(t, ok(t, "schema", "upgrade", w.url), "is up to date")
		})
	})

	t.Run("status names the version of a schema that is too new", func(t *testing.T) {
		t.Parallel()
		file := newFile(t)
		ok(t, "schema", "ensure", "sqlite:"+file)
		_, err := openDB(t, file).ExecContext(t.Context(), `UPDATE outmill_meta SET version = 999`)
		require.NoError(t, err)
		got := tool(t, "schema", "status", "sqlite:"+file)
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, "999")
	})
}
