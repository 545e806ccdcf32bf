package main

import (
	"bytes"
	"context"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func TestRequeue(t *testing.T) {
	t.Parallel()

	t.Run("requeue makes the dead records of a filter due, and no others", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			w.register(t, "billing", "orders", "payments")
			w.append(t, append(orders(3), &outmill.Record{Topic: "payments"})...)
			w.kill(t, "billing", "orders", "timeout")
			w.kill(t, "billing", "payments", "timeout")
			require.Equal(t, "3 records requeued.\n", ok(t, "requeue", w.url, "--topic", "orders"))
			require.Equal(t, 3, w.statusOf(t, "billing", "orders").Pending)
			require.Equal(t, 1, w.statusOf(t, "billing", "payments").Dead)
			require.Equal(t, "0 records requeued.\n", ok(t, "requeue", w.url, "--error", "refused"))
			report := okJSON[changed](t, "requeue", w.url)
			require.Contains(t, []int{1, 4}, report.Examined, "those that are dead, or all")
			report.Examined = 0
			require.Equal(t, changed{Action: "requeue", Count: 1, Done: true}, report)
		})
	})

	t.Run("requeue and delete take the messages of a contract", func(t *testing.T) {
		t.Parallel()
		onThreeStores(t, func(t *testing.T, w world) {
			w.register(t, "", "orders")
			records := orders(4)
			for i, version := range []string{"1", "2", "2"} {
				records[i].Metadata = map[string]string{outmill.MetadataContract: "placed", outmill.MetadataContractVersion: version}
			}
			w.append(t, records...)
			w.kill(t, "", "orders", "timeout")
			second := []string{"requeue", w.url, "--contract", "placed", "--contract-version", "2"}
			require.Equal(t, "2 records would be requeued.\n", ok(t, append(second, "--dry-run")...))
			require.Equal(t, "2 records requeued.\n", ok(t, second...))
			require.Equal(t, "1 record deleted.\n", ok(t, "delete", w.url, "--contract", "placed", "--contract-version", "1"))
			require.Equal(t, 1, w.statusOf(t, "default", "orders").Dead)
			entry := okJSON[auditReport](t, "audit", w.url).Entries[0]
			require.Equal(t, map[string]string{"contract": "placed", "contract_version": "1"}, entry.Filter)
		})
	})

	t.Run("requeue makes the named records due", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.register(t, "", "orders")
		records := orders(3)
		w.append(t, records...)
		w.kill(t, "", "orders", "timeout")
		id := records[0].ID.String()
		require.Equal(t, "1 record would be requeued.\n", ok(t, "requeue", w.url, "--dry-run", id, id))
		require.Equal(t, 3, w.statusOf(t, "default", "orders").Dead)
		require.Equal(t, "1 record requeued.\n", ok(t, "requeue", w.url, id))
		require.Equal(t, 2, w.statusOf(t, "default", "orders").Dead)
		again := tool(t, "requeue", w.url, id)
		require.Equal(t, exitOK, again.code, "a record that came back with another one is no failure")
		require.Contains(t, again.stderr, "Record "+id+" is pending, not dead")
		require.Equal(t, []string{id}, okJSON[changed](t, "requeue", w.url, id).NotDead)
	})

	t.Run("ids that the store does not have are named, the others are done, and the exit code is 1", func(t *testing.T) {
		t.Parallel()
		onThreeStores(t, func(t *testing.T, w world) {
			w.register(t, "", "orders")
			records := orders(2)
			w.append(t, records...)
			w.kill(t, "", "orders", "timeout")
			unknown := []string{outmill.NewWorkItemID().String(), outmill.NewWorkItemID().String()}
			for i, verb := range []string{"requeue", "delete"} {
				id := records[i].ID.String()
				for _, more := range [][]string{{"--dry-run"}, nil} {
					got := tool(t, append([]string{verb, w.url, unknown[0], id, unknown[1]}, more...)...)
					require.Equal(t, exitFailed, got.code)
					require.Regexp(t, "^1 record (would be )?"+verb+"d.\n$", got.stdout)
					require.Contains(t, got.stderr, "2 of 3 ids were not found in ")
					require.Contains(t, got.stderr, unknown[0]+", "+unknown[1])
				}
				got := tool(t, verb, w.url, unknown[0], "-o", "json")
				require.Equal(t, exitFailed, got.code)
				require.Contains(t, got.stdout, `"not_found": [`)
			}
			for _, args := range [][]string{{"show"}, {"skip"}, {"edit", "--set", "a=b"}} {
				got := tool(t, append(args, w.url, unknown[0])...)
				require.Equal(t, exitFailed, got.code, args)
				require.Contains(t, got.stderr, "no record with the id "+unknown[0])
				require.Empty(t, got.stdout)
			}
			got := tool(t, "groups", "drop", w.url, "nobody", "--yes")
			require.Equal(t, exitFailed, got.code)
			require.Contains(t, got.stderr, `no group "nobody"`)
		})
	})

	t.Run("a dry run counts and changes nothing", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.register(t, "", "orders")
		w.append(t, orders(250)...)
		w.kill(t, "", "orders", "timeout")
		require.Equal(t, "250 records would be requeued.\n", ok(t, "requeue", w.url, "--dry-run"))
		require.Equal(t, "30 records would be requeued.\n", ok(t, "requeue", w.url, "--dry-run", "--limit", "30"))
		require.Equal(t, 250, w.statusOf(t, "default", "orders").Dead)
		require.Equal(t, "30 records requeued.\n", ok(t, "requeue", w.url, "--limit", "30"))
		require.Equal(t, 220, w.statusOf(t, "default", "orders").Dead)
	})

	t.Run("more than a hundred records need a yes, and without a terminal the flag", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.register(t, "", "orders")
		w.append(t, orders(101)...)
		w.kill(t, "", "orders", "timeout")
		got := toolWith(t, "y\n", "requeue", w.url)
		require.Equal(t, exitUsage, got.code)
		require.Contains(t, got.stderr, "This would requeue more than 100 dead records of "+w.url)
		require.Contains(t, got.stderr, "--yes")
		require.Equal(t, 101, w.statusOf(t, "default", "orders").Dead)
		require.Equal(t, "101 records requeued.\n", ok(t, "requeue", w.url, "--yes"))
	})

	t.Run("a rate holds the records per second", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.register(t, "", "orders")
		w.append(t, orders(60)...)
		w.kill(t, "", "orders", "timeout")
		began := time.Now()
		require.Equal(t, "60 records requeued.\n", ok(t, "requeue", w.url, "--rate", "100"))
		require.Greater(t, time.Since(began), 450*time.Millisecond)
	})

	t.Run("arguments that make no sense are refused by name", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		id := outmill.NewWorkItemID().String()
		for want, args := range map[string][]string{
			"not both":     {w.url, id, "--topic", "orders"},
			"--limit":      {w.url, "--limit", "-1"},
			"--rate":       {w.url, "--rate", "-1"},
			"no id":        {w.url, "7"},
			"unknown flag": {w.url, "--status", "dead"},
		} {
			got := tool(t, append([]string{"requeue"}, args...)...)
			require.Equal(t, exitUsage, got.code, args)
			require.Contains(t, got.stderr, want)
		}
	})

	t.Run("a hundred thousand dead records survive a kill in the middle: a second run requeues the rest once", func(t *testing.T) {
		t.Parallel()
		onStores(t, requeueKilled)
	})
}

func requeueKilled(t *testing.T, w world) {
	const all = 100_000
	w.register(t, "", "orders")
	for range all / 5000 {
		w.append(t, orders(5000)...)
	}
	require.Equal(t, all, w.kill(t, "", "orders", "timeout"))

	done := requeueUntilKilled(t, w, 20_000)
	stats := w.statusOf(t, "default", "orders")
	require.Equal(t, all, stats.Pending+stats.Dead, "none is lost")
	require.GreaterOrEqual(t, stats.Pending, done, "what the progress showed is done")
	require.NotZero(t, stats.Dead, "the kill came too late to be one in the middle")

	second := okJSON[changed](t, "requeue", w.url, "--yes")
	require.True(t, second.Done)
	require.Equal(t, stats.Dead, second.Count, "the second run requeues what the first one left, and no record twice")
	require.Equal(t, all, w.statusOf(t, "default", "orders").Pending)
	require.Equal(t, all, w.claimAll(t), "each record is delivered once")
}

// requeueUntilKilled starts a requeue of all, kills it when its progress has reached n, and
// returns the number that it showed.
func requeueUntilKilled(t *testing.T, w world, n int) (shown int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	// The rate lets it run long enough to show its progress, on the slowest machine too.
	cmd := exec.CommandContext(ctx, binary, "requeue", w.url, "--yes", "--rate", "15000")
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line := regexp.MustCompile(`requeued (\d+) of about 100000, \d+/s\n`)
	var seen bytes.Buffer
	buffer := make([]byte, 4096)
	for shown < n {
		read, err := stderr.Read(buffer)
		seen.Write(buffer[:read])
		require.NoError(t, err, "it ended before it was killed: %s", seen.String())
		for _, found := range line.FindAllStringSubmatch(seen.String(), -1) {
			shown, err = strconv.Atoi(found[1])
			require.NoError(t, err)
		}
	}
	require.NoError(t, cmd.Process.Kill())
	_, _ = io.Copy(io.Discard, stderr)
	require.Error(t, cmd.Wait())
	return shown
}

// claimAll claims and acks all due records of the default group, and returns how many
// different ones there were; a record that comes twice fails the test.
func (w world) claimAll(t *testing.T) int {
	t.Helper()
	seen := map[outmill.WorkItemID]bool{}
	owner := outmill.NewOwnerToken()
	for {
		records, err := w.Claim(t.Context(), outmill.ClaimRequest{Owner: owner, Limit: 5000, Lease: time.Minute})
		require.NoError(t, err)
		if len(records) == 0 {
			return len(seen)
		}
		leases := make([]outmill.Lease, len(records))
		for i, r := range records {
			require.False(t, seen[r.ID], "a record came twice")
			seen[r.ID] = true
			leases[i] = r.Lease()
		}
		require.NoError(t, w.Ack(t.Context(), "", leases))
	}
}

func TestRequeue_interrupted(t *testing.T) {
	t.Parallel()
	t.Run("an interruption says how many are done and how to continue", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.register(t, "", "orders")
		w.append(t, orders(500)...)
		w.kill(t, "", "orders", "timeout")
		ctx, cancel := context.WithCancel(t.Context())
		var stdout, stderr bytes.Buffer
		code := make(chan int)
		go func() {
			code <- run(ctx, []string{"requeue", w.url, "--yes", "--rate", "50"}, terminal{in: strings.NewReader(""), out: &stdout, err: &stderr})
		}()
		require.Eventually(t, func() bool { return w.statusOf(t, "default", "orders").Pending > 0 }, time.Minute, 5*time.Millisecond)
		cancel()
		require.Equal(t, exitFailed, <-code)
		require.Regexp(t, `: it was interrupted\noutmill: \d+ records were requeued before that; run the same command again to continue`,
			stderr.String())
		require.Empty(t, stdout.String())
	})
}

func TestDelete(t *testing.T) {
	t.Parallel()

	t.Run("delete removes the records of a filter, and no others", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			w.register(t, "billing", "orders")
			w.append(t, orders(3)...)
			w.kill(t, "billing", "orders", "timeout")
			w.append(t, orders(2)...)
			require.Equal(t, "3 records would be deleted.\n", ok(t, "delete", w.url, "--status", "dead", "--dry-run"))
			require.Equal(t, "3 records deleted.\n", ok(t, "delete", w.url, "--status", "dead"))
			stats := w.statusOf(t, "billing", "orders")
			require.Equal(t, []int{0, 2}, []int{stats.Dead, stats.Pending})
		})
	})

	t.Run("delete removes the named records", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		records := orders(2)
		w.append(t, records...)
		require.Equal(t, "1 record deleted.\n", ok(t, "delete", w.url, records[0].ID.String()))
		require.Equal(t, exitFailed, tool(t, "show", w.url, records[0].ID.String()).code)
		ok(t, "show", w.url, records[1].ID.String())
	})

	t.Run("delete without a filter is refused", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		records := orders(2)
		w.append(t, records...)
		for _, args := range [][]string{{}, {"--yes"}, {"--limit", "1"}, {"--after", records[0].ID.String(), "--yes"}} {
			got := tool(t, append([]string{"delete", w.url}, args...)...)
			require.Equal(t, exitUsage, got.code, args)
			require.Contains(t, got.stderr, "every record would be deleted")
		}
		require.Equal(t, 2, w.statusOf(t, "", "orders").Pending)
	})

	t.Run("more than a hundred records need a yes", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.append(t, orders(150)...)
		require.Equal(t, exitUsage, tool(t, "delete", w.url, "--topic", "orders").code)
		require.Equal(t, 150, w.statusOf(t, "", "orders").Pending)
		require.Equal(t, "150 records deleted.\n", ok(t, "delete", w.url, "--topic", "orders", "--yes"))
	})
}

func TestAsk(t *testing.T) {
	t.Parallel()
	t.Run("only a yes goes on", func(t *testing.T) {
		t.Parallel()
		answers := map[string]bool{"y\n": true, "YES\n": true, "yes": true, "n\n": false, "\n": false, "": false, "yo\n": false}
		for answer, goesOn := range answers {
			var out bytes.Buffer
			err := ask(strings.NewReader(answer), &out, "This deletes 3 records.")
			require.Equal(t, goesOn, err == nil, "%q", answer)
			require.Equal(t, "This deletes 3 records. Continue? [y/N] ", out.String())
		}
	})
}
