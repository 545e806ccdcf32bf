//go:build unix

package chaos_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/kafkaengine"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/internal/testenv/proxy"
	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/roles"
)

const (
	envSeed     = "OUTMILL_CHAOS_SEED"
	envDuration = "OUTMILL_CHAOS_DURATION"

	// fullDuration is long enough for each kind of fault to happen.
	fullDuration = 2 * time.Minute
	// stuckAfter is how long no message may be delivered after the last fault has ended. The time
	// until all messages are delivered depends on the machine, which may have much else to do.
	stuckAfter = 5 * time.Minute
)

func TestChaos(t *testing.T) {
	t.Parallel()

	t.Run("nothing is lost invented or out of order whatever breaks", func(t *testing.T) {
		t.Parallel()
		if os.Getenv(envSeed) == "" && os.Getenv(envDuration) == "" {
			testenv.Long(t, "chaos: minutes of kills, stops, cuts and outages on each store")
		}
		seed := seedOf(t)
		for _, kind := range targets {
			// One after the other: each of them fills a small machine, and a store whose processes get no time does not come to its end.
			t.Run(kind.name, func(t *testing.T) {
				chaos(t, kind, seed, durationOf(t, kind))
			})
		}
	})
}

func chaos(t *testing.T, kind target, seed uint64, duration time.Duration) {
	// t.Log does not print if the test is killed.
	fmt.Printf("chaos on %s: %s=%d %s=%s\n", kind.name, envSeed, seed, envDuration, duration)

	s := newStage(t, kind, seed)
	p := s.newPlan(t, seed)
	if len(p.deck) == 0 {
		p.deck = deck
	}
	p.fill()
	away := min(kind.away, duration/2)
	back := outage(t, s.broker, duration/5, away, p.say)
	p.run(duration)
	p.retire(roleWriter)
	require.NoError(t, <-back)

	calm := time.Now()
	s.awaitEmpty(t, s.topic, errands, joins.Topic)
	drained := time.Since(calm).Round(time.Millisecond)
	p.retire(roleForwarder)
	p.retire(roleSubscriber)
	p.retire(roleOperator)

	writers := readReports(t, s.reports)
	ledger, err := s.db.ledger(t.Context())
	require.NoError(t, err)
	forwarded := judge(ledger, s.inKafka(t))
	handled := judge(ledger, inJournal(t, s.journal))
	forgotten := writers.forgotten(ledger)
	joinFates, err := fates(t.Context(), s.db)
	require.NoError(t, err)
	ends, faults := judgeJoins(joinFates)
	byInbox, err := effects(t.Context(), s.db.outbox(), booked)
	require.NoError(t, err)
	bySaga, err := effects(t.Context(), s.db.outbox(), counted)
	require.NoError(t, err)
	twice := judgeEffects(ledger, byInbox, bySaga)
	operators := readOperators(t, s.journal+"-"+roleOperator)
	worked := judgeDesk(errandsIn(ledger), inJournal(t, s.journal+"-"+desk), operators)
	visited := map[string]verdict{}
	for i := range guestCount {
		visited[guestName(i)] = judgeGuest(errandsIn(ledger), inJournal(t, s.journal+"-"+guestName(i)))
	}
	t.Logf("chaos on %s: duration=%s published=%d rolled_back=%d %s outage=%s drained_in=%s forgotten=%d | forwarded: %s | handled: %s | "+
		"joins: %v faults=%d | handled in transactions: by the inbox %d, by sagas %d, faults=%d | %s=%d",
		kind.name, duration, len(ledger), writers.rolledBack, p, away, drained, len(forgotten), forwarded, handled, ends, len(faults),
		len(byInbox), len(bySaga), len(twice), envSeed, seed)
	t.Logf("chaos on %s: operators: %v | their group: %s | groups that come and go: %v", kind.name, operators.deeds, worked, visited)
	t.Logf("the writers' trouble: %v", writers.trouble)
	require.NotEmpty(t, ledger)
	require.Empty(t, slices.Concat(few("strange error", writers.strange), few("forgotten", forgotten), few("join", faults),
		few("effect", twice),
		few("operator", operators.strange), worked.blame(desk), blameAll(visited),
		forwarded.blame("forwarded"), handled.blame("handled")), "%s=%d", envSeed, seed)
	require.NotEmpty(t, ends)
	if duration >= fullDuration {
		require.NotZero(t, ends[roles.JoinCompleted])
		require.NotZero(t, ends[roles.JoinFailed])
		for _, d := range p.deck {
			require.NotZero(t, p.count[d], "no %s", d)
		}
		for _, verb := range []string{"pause", "delete", "requeue", "drop"} {
			require.NotZero(t, operators.deeds[verb], "no %s", verb)
		}
	}
}

// stage has the servers and files that all processes share.
type stage struct {
	kind   target
	broker *kafkaengine.Engine
	server server
	topic  string
	// db does not use the proxy; through is the URL that does.
	db      database
	through string
	proxy   *proxy.Proxy
	// logs is the directory of all files. journal has the messages that subscribers have seen,
	// and reports the results of the writers' transactions.
	logs, journal, reports string
	diary                  *os.File
	// left has the undelivered records when a test ends too early.
	left []*outmill.Record
}

func newStage(t *testing.T, kind target, seed uint64) *stage {
	t.Helper()
	s := &stage{kind: kind, logs: t.ArtifactDir()}
	// Cleanups run in reverse order, so this runs after the diary is shown. The beginning of a
	// long log may be cut.
	t.Cleanup(func() { s.showLeft(t) })
	s.diary = openDiary(t, filepath.Join(s.logs, "diary"), seed)
	s.journal, s.reports = filepath.Join(s.logs, "journal"), filepath.Join(s.logs, "reports")
	for _, file := range []string{s.journal, s.reports} {
		require.NoError(t, os.WriteFile(file, nil, 0o600))
	}
	s.server = kind.serve(t)
	s.broker = kafkatest.Own(t)
	s.topic = kafkatest.CreateTopic(t, []string{s.broker.Addr}, 3)
	s.db = prepare(t, kind, s.server, s.topic)
	s.through = s.server.url(s.server.address())
	if address := s.server.address(); address != "" {
		s.proxy = proxy.New(t, address)
		s.through = s.server.url(s.proxy.Addr())
	}
	return s
}

func (s *stage) newPlan(t *testing.T, seed uint64) *plan {
	return &plan{
		t: t, dice: rand.New(rand.NewPCG(seed, 0)), count: map[deed]int{},
		server: s.server, proxy: s.proxy, deck: s.kind.deck, diary: s.diary,
		start: func(role, name string, dice uint64) *child {
			return startChild(t, s.logs, name, []string{
				envRole + "=" + role, envTarget + "=" + s.kind.name, envDatabase + "=" + s.through, envBroker + "=" + s.broker.Addr,
				envTopic + "=" + s.topic, envJournal + "=" + s.journal, envReports + "=" + s.reports, envDice + "=" + strconv.FormatUint(dice, 10),
			})
		},
	}
}

func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv(envSeed), strconv.FormatUint(uint64(rand.Uint32()), 10)), 10, 64)
	require.NoError(t, err, envSeed)
	return seed
}

func durationOf(t *testing.T, kind target) time.Duration {
	t.Helper()
	duration, err := time.ParseDuration(cmp.Or(os.Getenv(envDuration), kind.duration.String()))
	require.NoError(t, err, envDuration)
	return duration
}

// openDiary creates the file with the time of each fault. The test prints the file if it
// fails.
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

// prepare makes the tables, registers the groups, and returns a database that does not use the
// proxy.
func prepare(t *testing.T, kind target, at server, topic string) database {
	t.Helper()
	db, err := kind.connect(t.Context(), at.url(at.address()), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.close()) })
	store := db.outbox()
	require.NoError(t, store.Ensure(t.Context()))
	for group, topics := range map[string][]string{
		forwarder.DefaultGroup: {topic}, audit: {topic, doomed, joins.Topic}, books: {topic}, tallies: {topic}, desk: {errands},
	} {
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: group, Topics: outmill.Topics{Include: topics}}))
	}
	require.NoError(t, db.prepare(t.Context()))
	return db
}

// awaitEmpty waits until each message of the topics is delivered. A dead message does not
// count as delivered.
func (s *stage) awaitEmpty(t *testing.T, topics ...string) {
	t.Helper()
	fewest, since := math.MaxInt, time.Now()
	for {
		began := time.Now()
		count, err := s.countLeft(t.Context(), topics)
		// A count of many records may take seconds of the server that delivers them. The pauses must leave room for many counts.
		pause := min(max(200*time.Millisecond, 10*time.Since(began)), stuckAfter/20)
		switch {
		case err == nil && count == 0:
			return
		case err == nil && count < fewest:
			fewest, since = count, time.Now()
		}
		require.Less(t, time.Since(since), stuckAfter, "%d messages are left, and none was delivered for %s: %v", count, stuckAfter, err)
		<-time.After(pause)
	}
}

// countLeft counts the undelivered records, and keeps the first ones.
func (s *stage) countLeft(ctx context.Context, topics []string) (int, error) {
	const first, most = 20, 100_000
	s.left = nil
	for _, topic := range topics {
		left, err := s.db.outbox().List(ctx, outmill.ListQuery{Content: true, Topic: topic, Limit: first})
		if err != nil {
			return 0, err
		}
		s.left = append(s.left, left...)
	}
	if len(s.left) == 0 {
		return 0, nil
	}
	stats, err := s.db.outbox().Stats(ctx, most)
	count := 0
	for _, of := range stats {
		if slices.Contains(topics, of.Topic) {
			count += of.Pending + of.Leased + of.Processed + of.Dead
		}
	}
	return max(count, len(s.left)), err
}

func (s *stage) showLeft(t *testing.T) {
	for _, r := range s.left {
		t.Logf("left: %s %s %s %s in group %q, claims %d, attempts %d, expiries %d, due %s, leased until %s by %q, last error %q", r.MessageID,
			r.Key, r.Payload, r.Status, r.Group,
			r.Claims, r.Attempts, r.Expiries, r.NextAttemptAt.Format(time.StampMilli), r.LeaseUntil.Format(time.StampMilli), r.Owner, r.LastError)
	}
}

// inKafka returns the messages of the topic, and writes them to a file, as subscribers do with
// the messages that they see. The records of a key are in their order if they are in one
// partition.
func (s *stage) inKafka(t *testing.T) []sighting {
	t.Helper()
	var all []sighting
	var journal strings.Builder
	partitions := map[string]int32{}
	for _, r := range kafkatest.ReadAll(t, []string{s.broker.Addr}, s.topic) {
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
		seen := sightingOf(t, headers[wkafka.UUIDHeaderKey], key, string(r.Value), by)
		all = append(all, seen)
		fmt.Fprintln(&journal, seen)
	}
	require.NoError(t, os.WriteFile(filepath.Join(s.logs, "kafka"), []byte(journal.String()), 0o600))
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
		all = append(all, sightingOf(t, strings.TrimPrefix(words[0], errand), words[1], words[2], words[3]))
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
