package subscriber_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

// A child is this test binary in another process, with a role to play.
const (
	roleVariable     = "OUTMILL_SUBSCRIBER_TEST_ROLE"
	databaseVariable = "OUTMILL_SUBSCRIBER_TEST_DATABASE"

	// hoarder takes messages and neither acks nor nacks them.
	hoarder = "hoarder"
	// victim handles messages, and one of them ends its process.
	victim = "victim"

	killer     = "killer"
	childLease = 500 * time.Millisecond
)

func childConfig() subscriber.Config {
	cfg := quick()
	cfg.Lease = childLease
	return cfg
}

func play(role string) int {
	if err := perform(role); err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		return 2
	}
	return 0
}

func perform(role string) error {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, os.Getenv(databaseVariable), sqlite.Config{Retain: time.Hour}, nil)
	if err != nil {
		return err
	}
	sub, err := subscriber.New(store, childConfig(), nil)
	if err != nil {
		return err
	}
	messages, err := sub.Subscribe(ctx, topic)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for msg := range messages {
		switch {
		case role == hoarder:
			fmt.Println("holds", msg.UUID)
		case string(msg.Payload) == killer:
			os.Exit(1)
		default:
			msg.Ack()
		}
	}
	return nil
}

// start runs a child and returns its lines of output.
func start(t *testing.T, role, database string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), roleVariable+"="+role, databaseVariable+"="+database)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	t.Cleanup(func() {
		// If the test passed, it has already waited for the process.
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	return child, bufio.NewScanner(out)
}

func openFile(t *testing.T) (*shop, string) {
	t.Helper()
	file := "file:" + filepath.Join(t.TempDir(), "outbox.db") + "?_pragma=synchronous(OFF)"
	store, err := sqlite.Open(t.Context(), file, sqlite.Config{Retain: time.Hour}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	pub, err := publisher.New(store, publisher.Config{}, nil)
	require.NoError(t, err)
	return &shop{Store: store, pub: pub}, file
}

func TestSubscriber_Child(t *testing.T) {
	t.Parallel()

	t.Run("another process delivers the records of a killed process", func(t *testing.T) {
		t.Parallel()
		s, file := openFile(t)
		require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Topics: outmill.Topics{Include: []string{topic}}}))
		const total = 30
		var want []string
		for range total {
			msg := newOrder()
			want = append(want, msg.UUID)
			s.publish(t, msg)
		}
		child, lines := start(t, hoarder, file)
		for held := 0; held < total; {
			require.True(t, lines.Scan(), "the child ended")
			if strings.HasPrefix(lines.Text(), "holds") {
				held++
			}
		}
		require.NoError(t, child.Process.Kill())
		require.Error(t, child.Wait())

		messages := subscribe(t, s.subscriber(t, childConfig()))
		var got []string
		for range total {
			msg := next(t, messages)
			got = append(got, msg.UUID)
			msg.Ack()
		}
		require.ElementsMatch(t, want, got)
		require.Eventually(t, func() bool { return s.count(t, outmill.StatusProcessed) == total }, patience, 5*time.Millisecond)
	})

	t.Run("a record that kills its workers goes dead and its neighbours do not", func(t *testing.T) {
		t.Parallel()
		s, file := openFile(t)
		require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Topics: outmill.Topics{Include: []string{topic}}}))
		const neighbours = 20
		for n := range neighbours + 1 {
			payload := "harmless"
			if n == neighbours/2 {
				payload = killer
			}
			s.publish(t, message.NewMessage(watermill.NewUUID(), []byte(payload)))
		}
		// Two expiries make a record a suspect, and each further expiry counts an attempt. In
		// between, a crash can also lose outcomes of other records that were not stored yet.
		for crashes := 0; s.count(t, outmill.StatusDead) == 0; crashes++ {
			require.Less(t, crashes, 20, "the killer is still alive")
			child, lines := start(t, victim, file)
			died := make(chan struct{})
			go func() {
				defer close(died)
				for lines.Scan() {
					continue
				}
				_ = child.Wait()
			}()
			require.Eventually(t, func() bool {
				select {
				case <-died:
					return true
				default:
					return s.count(t, outmill.StatusDead) > 0
				}
			}, patience, 5*time.Millisecond)
			_ = child.Process.Kill()
			<-died
		}
		messages := subscribe(t, s.subscriber(t, childConfig()))
		go func() {
			for msg := range messages {
				msg.Ack()
			}
		}()
		require.Eventually(t, func() bool { return s.count(t, outmill.StatusProcessed) == neighbours }, patience, 5*time.Millisecond)
		dead, err := s.List(t.Context(), outmill.ListQuery{Content: true, Status: outmill.StatusDead})
		require.NoError(t, err)
		require.Len(t, dead, 1)
		require.Equal(t, killer, string(dead[0].Payload))
		require.Contains(t, dead[0].LastError, "killing its workers")
	})
}
