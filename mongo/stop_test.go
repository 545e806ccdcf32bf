//go:build linux

package mongo_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
)

// stopsEnv makes the program of the tests claim as a process of its own, and stop before it
// writes its choice.
const stopsEnv = "OUTMILL_TEST_STOPS"

type stopping struct {
	URL, Database string
	Request       outmill.ClaimRequest
}

func TestChild_Stopped(t *testing.T) {
	text := os.Getenv(stopsEnv)
	if text == "" {
		t.Skip("it is started by tests")
	}
	var how stopping
	require.NoError(t, json.Unmarshal([]byte(text), &how))
	var stop sync.Once
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	defer signal.Stop(goesOn)
	client := clientOf(t, options.Client().ApplyURI(how.URL).SetMonitor(&event.CommandMonitor{Started: func(_ context.Context,
		e *event.CommandStartedEvent) {
		if at, _ := e.Command.Lookup("update").StringValueOK(); at == "outmill_records" {
			stop.Do(func() {
				_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
				// A thread may run for a moment before the signal stops it.
				<-goesOn
			})
		}
	}}))
	store := newStore(t, client, mongo.Config{Database: how.Database, WithoutChangeStream: true})
	mongo.SetTurn(store, shortTurn)
	found, err := store.Claim(t.Context(), how.Request)
	require.NoError(t, err)
	answer, err := json.Marshal(namesOf(found))
	require.NoError(t, err)
	fmt.Printf("\nclaimed %s\n", answer)
}

// stopped is a process that has chosen records for the request, and has stopped. goOn continues
// it, and returns the records that its claim returned.
func (s stand) stopped(t *testing.T, req outmill.ClaimRequest) (goOn func() []string) {
	t.Helper()
	text, err := json.Marshal(stopping{mongotest.Server(t), s.db.Name(), req})
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild_Stopped$", "-test.count=1")
	cmd.Env = append(os.Environ(), stopsEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	require.True(t, eventually(t.Context(), patience, func() bool { return stateOf(cmd.Process.Pid) == "T" }), "it stops")
	return func() []string {
		require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
		var names, said []string
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			said = append(said, lines.Text())
			if list, is := strings.CutPrefix(lines.Text(), "claimed "); is {
				require.NoError(t, json.Unmarshal([]byte(list), &names))
			}
		}
		require.NoError(t, cmd.Wait(), strings.Join(said, "\n"))
		return names
	}
}

// stateOf is Linux's letter for the state of a process.
func stateOf(pid int) string {
	stat, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[:min(1, len(rest))]
}

func TestStore_Stop(t *testing.T) {
	t.Parallel()

	// The process chose the second record of a key while the first one waited, as the policy
	// allows. Then the first one became due, and another process handles it.
	t.Run("a claim in order that stops between choice and write returns nothing after its turn", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		require.NoError(t, s.Append(t.Context(), keyed("key", "first", "second")...))
		first := claimed(t, s, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey))
		require.NoError(t, s.Abandon(t.Context(), []outmill.Settlement{{Lease: first[0].Lease(), Delay: time.Hour}}))
		late := claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey)
		late.KeyPolicy = outmill.KeySkip
		goOn := s.stopped(t, late)
		s.moved(t, "available_at", bson.D{{Key: "stage", Value: 2}})
		var names []string
		now := claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey)
		now.KeyPolicy = outmill.KeySkip
		require.True(t, eventually(t.Context(), patience, func() bool {
			names = append(names, s.got(t, now)...)
			return len(names) > 0
		}), "its turn ends")
		require.Equal(t, []string{"first"}, names)
		require.Empty(t, goOn(), "another process has the key")
		now.Limit = 10
		require.True(t, eventually(t.Context(), patience, func() bool {
			names = append(names, s.got(t, now)...)
			return len(names) > 1
		}), "what it leased in vain it gave back")
		require.Equal(t, []string{"first", "second"}, names)
	})

	// The process chose three records of a key. Another process has claimed the first since.
	t.Run("a claim in order that stops returns nothing behind records of others", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		require.NoError(t, s.Append(t.Context(), keyed("key", "a", "b", "c")...))
		goOn := s.stopped(t, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey))
		mine := claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey)
		var names []string
		require.True(t, eventually(t.Context(), patience, func() bool {
			names = append(names, s.got(t, mine)...)
			return len(names) > 0
		}), "its turn ends")
		require.Equal(t, []string{"a"}, names)
		require.Empty(t, goOn())
		mine.Limit = 10
		require.True(t, eventually(t.Context(), patience, func() bool {
			names = append(names, s.got(t, mine)...)
			return len(names) > 2
		}))
		require.Equal(t, []string{"a", "b", "c"}, names)
	})
}
