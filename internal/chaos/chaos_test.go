//go:build unix

package chaos_test

import (
	"bufio"
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/kafkaengine"
	"github.com/outmill/outmill/internal/testenv/postgresengine"
	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/postgres"
)

const (
	envSeed     = "OUTMILL_CHAOS_SEED"
	envDuration = "OUTMILL_CHAOS_DURATION"

	defaultDuration = 2 * time.Minute
	awayFor         = 30 * time.Second
	// calmWithin bounds the time in which all is delivered once nothing is broken.
	calmWithin = 2 * time.Minute
)

func Test_nothing_is_lost_invented_or_out_of_order_whatever_breaks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("skipped: chaos takes minutes, and is not made under -short")
	}
	seed, duration := settings(t)
	// Not by t.Log, which a test that is ended from outside does not print.
	fmt.Printf("chaos: %s=%d %s=%s\n", envSeed, seed, envDuration, duration)

	s := newStage(t, seed)
	p := s.newPlan(t, seed)
	p.fill()
	w := newWriters(t, s.through, s.topic)
	w.start(seed)
	away := min(awayFor, duration/2)
	back := outage(t, s.broker, duration/5, away, p.say)
	p.run(duration)
	w.end()
	require.NoError(t, <-back)

	calm := time.Now()
	awaitEmpty(t, s.store, s.topic, joins.Topic)
	drained := time.Since(calm).Round(time.Millisecond)
	for _, seat := range p.seats {
		require.NoError(t, seat.child.retire())
	}

	ledger := readLedger(t, s.server.URL)
	forwarded := judge(ledger, inKafka(t, s.broker.Addr, s.topic))
	handled := judge(ledger, inJournal(t, s.journal))
	forgotten := w.forgotten(ledger)
	ends, faults := judgeJoins(t, s.server.URL)
	t.Logf("chaos: duration=%s published=%d rolled_back=%d %s outage=%s drained_in=%s forgotten=%d | forwarded: %s | handled: %s | joins: %v faults=%d | %s=%d",
		duration, len(ledger), w.rolledBack, p, away, drained, len(forgotten), forwarded, handled, ends, len(faults), envSeed, seed)
	t.Logf("the writers' trouble: %v", w.trouble)
	require.NotEmpty(t, ledger)
	require.Empty(t, slices.Concat(few("strange error", w.strange), few("forgotten", forgotten), few("join", faults), forwarded.blame("forwarded"), handled.blame("handled")), "%s=%d", envSeed, seed)
	require.NotEmpty(t, ends)
	if duration >= defaultDuration {
		require.NotZero(t, ends["completed"])
		require.NotZero(t, ends["failed"])
		for _, d := range deck {
			require.NotZero(t, p.count[d], "no %s", d)
		}
	}
}

// stage is what the processes share.
type stage struct {
	broker *kafkaengine.Engine
	server *postgresengine.Engine
	topic  string
	// store goes past the proxy; through is the URL of the way through it.
	store   *postgres.Store
	through string
	proxy   *proxy
	// logs is the directory of all that is written, journal what subscribers
	// have seen.
	logs, journal string
	diary         *os.File
}

func newStage(t *testing.T, seed uint64) *stage {
	t.Helper()
	s := &stage{logs: t.ArtifactDir()}
	s.diary = openDiary(t, filepath.Join(s.logs, "diary"), seed)
	s.journal = filepath.Join(s.logs, "journal")
	require.NoError(t, os.WriteFile(s.journal, nil, 0o600))
	s.broker = testenv.OwnKafka(t)
	s.server = testenv.OwnPostgres(t, "fsync=on", "full_page_writes=on", "synchronous_commit=on")
	s.topic = testenv.CreateTopic(t, []string{s.broker.Addr}, 3)
	s.store = prepare(t, s.server.URL, s.topic)
	s.through, s.proxy = proxyTo(t, s.server.URL)
	return s
}

func (s *stage) newPlan(t *testing.T, seed uint64) *plan {
	return &plan{
		t: t, dice: rand.New(rand.NewPCG(seed, 0)), count: map[deed]int{},
		postgres: s.server, proxy: s.proxy, diary: s.diary,
		start: func(role, name string) *child {
			return startChild(t, s.logs, name, []string{
				envRole + "=" + role, envDatabase + "=" + s.through, envBroker + "=" + s.broker.Addr,
				envTopic + "=" + s.topic, envJournal + "=" + s.journal,
			})
		},
	}
}

func settings(t *testing.T) (seed uint64, duration time.Duration) {
	t.Helper()
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv(envSeed), strconv.FormatUint(uint64(rand.Uint32()), 10)), 10, 64)
	require.NoError(t, err, envSeed)
	duration, err = time.ParseDuration(cmp.Or(os.Getenv(envDuration), defaultDuration.String()))
	require.NoError(t, err, envDuration)
	return seed, duration
}

// openDiary makes the file that tells what was done when. Where the test fails
// it is shown.
func openDiary(t *testing.T, file string, seed uint64) *os.File {
	t.Helper()
	diary, err := os.Create(file)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = diary.Close()
		if t.Failed() {
			text, _ := os.ReadFile(file)
			t.Logf("chaos: %s=%d, with -artifacts the logs are kept; what was done:\n%s", envSeed, seed, text)
		}
	})
	return diary
}

// prepare makes the tables and registers the groups, and returns a store that
// goes past the proxy.
func prepare(t *testing.T, databaseURL, topic string) *postgres.Store {
	t.Helper()
	store, err := postgres.Open(t.Context(), databaseURL, postgres.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	for group, topics := range map[string][]string{forwarder.DefaultGroup: {topic}, audit: {topic, doomed, joins.Topic}} {
		require.NoError(t, store.RegisterGroup(t.Context(), group, outmill.Topics{Include: topics}))
	}
	for _, table := range []string{tables, tableOfJoins} {
		_, err = store.Pool().Exec(t.Context(), table)
		require.NoError(t, err)
	}
	for i := range keyCount {
		_, err = store.Pool().Exec(t.Context(), "INSERT INTO accounts (key, n) VALUES ($1, 0)", keyName(i))
		require.NoError(t, err)
	}
	return store
}

func proxyTo(t *testing.T, databaseURL string) (throughURL string, _ *proxy) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	require.NoError(t, err)
	p := newProxy(t, u.Host)
	u.Host = p.addr()
	return u.String(), p
}

// awaitEmpty waits until each message of the topics is delivered. A dead one is
// not.
func awaitEmpty(t *testing.T, store *postgres.Store, topics ...string) {
	t.Helper()
	var left []*outmill.Record
	var err error
	empty := func() bool {
		for _, topic := range topics {
			left, err = store.List(t.Context(), outmill.ListQuery{Topic: topic, Limit: 20})
			if err != nil || len(left) > 0 {
				return false
			}
		}
		return true
	}
	deadline := time.Now().Add(calmWithin)
	for !empty() {
		if time.Now().After(deadline) {
			for _, r := range left {
				t.Logf("left: %s %s %s %s in group %q, claims %d, attempts %d, expiries %d, last error %q", r.MessageID, r.Key, r.Payload, r.Status, r.Group, r.Claims, r.Attempts, r.Expiries, r.LastError)
			}
			t.Fatalf("messages are left after %s: %v", calmWithin, err)
		}
		<-time.After(50 * time.Millisecond)
	}
}

func readLedger(t *testing.T, databaseURL string) map[string]entry {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), "SELECT uuid, key, n FROM ledger")
	require.NoError(t, err)
	ledger := map[string]entry{}
	for rows.Next() {
		var uuid string
		var e entry
		require.NoError(t, rows.Scan(&uuid, &e.key, &e.n))
		ledger[uuid] = e
	}
	require.NoError(t, rows.Err())
	return ledger
}

// inKafka returns what the topic has. The records of a key are in their order if
// they are in one partition.
func inKafka(t *testing.T, broker, topic string) []sighting {
	t.Helper()
	var all []sighting
	partitions := map[string]int32{}
	for _, r := range testenv.ReadAll(t, []string{broker}, topic) {
		headers := map[string]string{}
		for _, h := range r.Headers {
			headers[h.Key] = string(h.Value)
		}
		key := string(r.Key)
		if partition, known := partitions[key]; known {
			require.Equal(t, partition, r.Partition, "key %s", key)
		}
		partitions[key] = r.Partition
		by := fmt.Sprintf("%s:partition-%d:offset-%d:%s", headers[seenBy], r.Partition, r.Offset, r.Timestamp.UTC().Format("15:04:05.000"))
		all = append(all, sightingOf(t, headers[wkafka.UUIDHeaderKey], key, string(r.Value), by))
	}
	return all
}

func inJournal(t *testing.T, file string) []sighting {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	var all []sighting
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		require.Len(t, words, 4, lines.Text())
		all = append(all, sightingOf(t, words[0], words[1], words[2], words[3]))
	}
	require.NoError(t, lines.Err())
	return all
}

func sightingOf(t *testing.T, uuid, key, payload, by string) sighting {
	t.Helper()
	n, err := strconv.Atoi(payload)
	require.NoError(t, err, "%s %s %s", uuid, key, by)
	return sighting{uuid: uuid, entry: entry{key, n}, by: by}
}
