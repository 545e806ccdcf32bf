package allstores

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// The stores of a fleet: joins are at home in the first, and their steps are in all.
const (
	home  = "home"
	east  = "east"
	west  = "west"
	group = outmill.DefaultGroup

	work  = "work"
	ended = "ended"
	broke = "broke"

	tickOfJoins = time.Millisecond
)

var (
	errStoreAway = errors.New("the database is away")
	errNoAnswer  = errors.New("the handler has not answered")
	everywhere   = []string{home, east, west}
)

// remotePairs are the providers of home, east and west.
var remotePairs = map[string][3]string{
	"SQLite with SQLite":                 {"SQLite", "SQLite", "SQLite"},
	"SQLite with PostgreSQL":             {"SQLite", "PostgreSQL", "PostgreSQL"},
	"PostgreSQL with SQLite":             {"PostgreSQL", "SQLite", "PostgreSQL"},
	"PostgreSQL with MongoDB":            {"PostgreSQL", "MongoDB", "PostgreSQL"},
	"MongoDB with PostgreSQL and SQLite": {"MongoDB", "PostgreSQL", "SQLite"},
}

// fleet has the handlers of joins in a router, and hands them the records one by one, so that
// a test decides which of them comes next, and which is lost.
type fleet struct {
	t      tb
	stores map[string]outmill.Store
	topics map[string]chan *message.Message
	logged *journal.Journal

	// allow is RemoteConfig.Allow; nil allows all.
	allow func(home, to string) bool

	// onOpen is called before a handler gets a store.
	onOpen func()
	held   []heldRecord

	mu   sync.Mutex
	away map[string]bool
}

func newRemoteFleet(t *testing.T, providers [3]string) *fleet {
	t.Helper()
	return newFleetOf(t, stores[providers[0]], stores[providers[1]], stores[providers[2]])
}

func newFleetOf(t *testing.T, openers ...func(t *testing.T) outmill.Store) *fleet {
	t.Helper()
	f := &fleet{
		t: t, stores: map[string]outmill.Store{}, topics: map[string]chan *message.Message{}, logged: journal.New(),
		away: map[string]bool{},
	}
	for i, name := range everywhere {
		store := openers[i](t)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: group}))
		f.stores[name] = store
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, f.logged)
	require.NoError(t, err)
	waits, err := joins.AddHandlers(router, f, joins.Config{Store: f.joins(home)})
	require.NoError(t, err)
	handlers, err := joins.AddRemoteHandlers(router, f, joins.RemoteConfig{
		Stores: f.open, Snooze: 1,
		Allow: func(from, to string) bool { return f.allow == nil || f.allow(from, to) },
	})
	require.NoError(t, err)
	for _, handler := range append(handlers, waits) {
		handler.AddMiddleware(keepResult)
	}
	run(t, router)
	return f
}

// open is RemoteConfig.Stores.
func (f *fleet) open(name string) (outmill.Store, error) {
	if f.onOpen != nil {
		f.onOpen()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away[name] {
		return nil, errStoreAway
	}
	if f.stores[name] == nil {
		return nil, &joins.UnknownStoreError{Store: name}
	}
	return f.stores[name], nil
}

// leave takes a store away, or brings it back.
func (f *fleet) leave(name string, away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away[name] = away
}

func (f *fleet) joins(name string) roles.Joins { return f.stores[name].(roles.Joins) }

// Subscribe implements message.Subscriber for the router.
func (f *fleet) Subscribe(_ context.Context, topic string) (<-chan *message.Message, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.topics[topic] = make(chan *message.Message)
	return f.topics[topic], nil
}

// Close implements message.Subscriber.
func (f *fleet) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, topic := range f.topics {
		close(topic)
	}
	clear(f.topics)
	return nil
}

// claim leases the record of a topic that is due first; nil if none is.
func (f *fleet) claim(store, topic string) *outmill.Record {
	f.t.Helper()
	found, err := f.stores[store].Claim(f.t.Context(), outmill.ClaimRequest{
		Owner: outmill.NewOwnerToken(), Group: group, Topics: outmill.Topics{Include: []string{topic}}, Limit: 1, Lease: patience,
	})
	require.NoError(f.t, err)
	if len(found) == 0 {
		return nil
	}
	return found[0]
}

// handle has the handler of the record's topic handle it, and returns its error.
func (f *fleet) handle(store string, rec *outmill.Record) error {
	f.t.Helper()
	err, acked := f.tryHandle(store, rec)
	require.Equal(f.t, err == nil, acked, "a message is acked if its handler succeeds, and only then: %v", err)
	return err
}

func (f *fleet) tryHandle(store string, rec *outmill.Record) (err error, acked bool) {
	copied := *rec
	copied.Metadata = maps.Clone(rec.Metadata)
	msg := storekit.MessageOf(&copied)
	result := &handled{}
	ctx := context.WithValue(f.t.Context(), handledKey{}, result)
	msg.SetContext(storekit.NewHandling(store, &copied, nil).Context(ctx))
	f.topics[rec.Topic] <- msg
	select {
	case <-msg.Acked():
		return result.err, true
	case <-msg.Nacked():
		return result.err, false
	case <-time.After(patience):
		// A hook has ended the test, and with it the goroutine of the handler.
		return errNoAnswer, false
	}
}

// tb is a test, or a step of a property.
type tb interface {
	require.TestingT
	Helper()
	Context() context.Context
}

type handledKey struct{}

type handled struct{ err error }

// keepResult is middleware that keeps the error of the handler.
func keepResult(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := h(msg)
		msg.Context().Value(handledKey{}).(*handled).err = err
		return produced, err
	}
}

// settle does with the record what a subscriber does for the error of its handler. The handlers
// of joins never use up an attempt.
func (f *fleet) settle(store string, rec *outmill.Record, err error) {
	f.t.Helper()
	queue, ctx := f.stores[store], f.t.Context()
	_, snoozed := outmill.SnoozeDelay(err)
	switch {
	case err == nil:
		require.NoError(f.t, queue.Ack(ctx, "", []outmill.Lease{rec.Lease()}))
	case snoozed:
		require.NoError(f.t, queue.Snooze(ctx, []outmill.Settlement{{Lease: rec.Lease()}}))
	case outmill.IsPermanent(err):
		require.NoError(f.t, queue.Fail(ctx, []outmill.Settlement{{Lease: rec.Lease(), Err: err.Error()}}))
	default:
		require.NoError(f.t, err, "an attempt was used up")
	}
}

// next handles the next record of the topic, and returns its error.
func (f *fleet) next(store, topic string) error {
	f.t.Helper()
	rec := f.mustClaim(store, topic)
	err := f.handle(store, rec)
	f.settle(store, rec, err)
	return err
}

// nextFew handles the next n records of the topic, each once, because it claims all of them before
// one of them is snoozed.
func (f *fleet) nextFew(store, topic string, n int) []error {
	f.t.Helper()
	var held []*outmill.Record
	for range n {
		held = append(held, f.mustClaim(store, topic))
	}
	errs := make([]error, n)
	for i, rec := range held {
		errs[i] = f.handle(store, rec)
		f.settle(store, rec, errs[i])
	}
	return errs
}

func (f *fleet) mustClaim(store, topic string) (rec *outmill.Record) {
	f.t.Helper()
	f.until(func() bool {
		rec = f.claim(store, topic)
		return rec != nil
	}, "no message on %s in %s", topic, store)
	return rec
}

// do is the work of a step.
func (f *fleet) do(store string, ok bool) {
	f.t.Helper()
	rec := f.mustClaim(store, work)
	if ok {
		f.settle(store, rec, nil)
		return
	}
	f.settle(store, rec, outmill.Permanent(errors.New("the source is broken")))
}

func (f *fleet) records(store, topic string, status outmill.Status) []*outmill.Record {
	f.t.Helper()
	found, err := f.stores[store].List(f.t.Context(), outmill.ListQuery{Content: true, Topic: topic, Status: status, Limit: 1000})
	require.NoError(f.t, err)
	return found
}

// start begins a join in the home, with a step in each of the stores, and waits for it.
func (f *fleet) start(join joins.Join, to ...string) outmill.JoinID {
	f.t.Helper()
	id, err := joins.Start(f.t.Context(), f.joins(home), join)
	require.NoError(f.t, err)
	require.NoError(f.t, joins.SendSteps(f.t.Context(), f.stores[home], id, remoteSteps(to...)...))
	f.wait(id)
	return id
}

func remoteSteps(to ...string) []joins.RemoteStep {
	steps := make([]joins.RemoteStep, len(to))
	for i, store := range to {
		steps[i] = joins.RemoteStep{Store: store, Topic: work, Message: message.NewMessage(watermill.NewUUID(), []byte("for "+store))}
	}
	return steps
}

func (f *fleet) wait(id outmill.JoinID) {
	f.t.Helper()
	require.NoError(f.t, joins.Wait(f.t.Context(), appender{f.stores[home]}, joins.WaitRequest{
		Join: id, FailIfAnyStepFailed: true, OnComplete: joins.Next{Topic: ended}, OnFail: joins.Next{Topic: broke},
	}))
}

// appender is a publisher without batches.
type appender struct{ store outmill.Store }

func (a appender) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		rec, err := storekit.RecordOf(topic, msg)
		if err != nil {
			return err
		}
		if err := a.store.Append(msg.Context(), rec); err != nil {
			return err
		}
	}
	return nil
}

func (appender) Close() error { return nil }

func (f *fleet) join(id outmill.JoinID) *roles.Join {
	f.t.Helper()
	join, err := f.joins(home).GetJoin(f.t.Context(), id)
	require.NoError(f.t, err)
	return join
}

func (f *fleet) requireCounts(id outmill.JoinID, completed, failed int) {
	f.t.Helper()
	join := f.join(id)
	require.Equal(f.t, []int{completed, failed}, []int{join.CompletedSteps, join.FailedSteps}, "completed and failed steps")
}

// finish handles what is left until nothing is, and requires that the join has ended once, with
// that status.
func (f *fleet) finish(id outmill.JoinID, status roles.JoinStatus, completed, failed int) {
	f.t.Helper()
	f.drain()
	f.requireCounts(id, completed, failed)
	require.Equal(f.t, status, f.join(id).Status)
	topics := map[roles.JoinStatus]string{roles.JoinCompleted: ended, roles.JoinFailed: broke}
	for at, topic := range topics {
		want := 0
		if at == status {
			want = 1
		}
		require.Equal(f.t, want, f.follows(id, topic), topic)
	}
}

// follows counts the messages that follow the join on a topic.
func (f *fleet) follows(id outmill.JoinID, topic string) (n int) {
	f.t.Helper()
	for _, rec := range f.records(home, topic, "") {
		if rec.Metadata[joins.MetadataJoinID] == id.String() {
			n++
		}
	}
	return n
}

// drain handles the messages of joins until none is left that is not dead.
func (f *fleet) drain() {
	f.t.Helper()
	f.until(func() bool { return f.drainOnce() == 0 }, "messages of joins are left: %v", &remains{f})
}

// until asks until the answer is yes, a limited number of times, so that a slow machine changes
// nothing. It asks in the goroutine of the test, because the question may end the test.
func (f *fleet) until(is func() bool, otherwise string, args ...any) {
	f.t.Helper()
	const most = 2000
	for asked := 0; !is(); asked++ {
		require.Less(f.t, asked, most, append([]any{otherwise}, args...)...)
		<-time.After(tickOfJoins)
	}
}

// drainOnce handles each message of joins that is due, and counts those that are left.
func (f *fleet) drainOnce() int {
	f.t.Helper()
	for _, store := range everywhere {
		for _, topic := range storekit.JoinTopics() {
			seen := map[outmill.WorkItemID]bool{}
			for rec := f.claim(store, topic); rec != nil; rec = f.claim(store, topic) {
				if seen[rec.ID] {
					require.NoError(f.t, f.stores[store].Release(f.t.Context(), []outmill.Lease{rec.Lease()}))
					break
				}
				seen[rec.ID] = true
				f.settle(store, rec, f.handle(store, rec))
			}
		}
	}
	return f.pending(storekit.JoinTopics()...)
}

// pending counts the records of the topics that are pending.
func (f *fleet) pending(topics ...string) (n int) {
	f.t.Helper()
	for _, store := range everywhere {
		for _, topic := range topics {
			n += len(f.records(store, topic, outmill.StatusPending))
		}
	}
	return n
}

// purge deletes all records, and brings all stores back.
func (f *fleet) purge() {
	f.t.Helper()
	f.giveBack()
	for _, store := range everywhere {
		f.leave(store, false)
		for _, rec := range f.records(store, "", "") {
			if rec.Status == outmill.StatusLeased {
				require.NoError(f.t, f.stores[store].Release(f.t.Context(), []outmill.Lease{rec.Lease()}))
			}
			_, err := f.stores[store].Delete(f.t.Context(), rec.ID)
			require.NoError(f.t, err)
		}
	}
	f.allow = nil
}

// remains describes, in a failed test, what is left.
type remains struct{ f *fleet }

func (l *remains) String() (text string) {
	for _, store := range everywhere {
		for _, topic := range slices.Concat(storekit.JoinTopics(), []string{work}) {
			for _, rec := range l.f.records(store, topic, "") {
				text += store + ": " + topic + ", " + string(rec.Status) + ", " + rec.LastError + "; "
			}
		}
	}
	return text
}

// send handles n records of steps, which snooze afterwards.
func (f *fleet) send(n int) {
	f.t.Helper()
	for _, err := range f.nextFew(home, joins.RemoteTopic, n) {
		_, snoozed := outmill.SnoozeDelay(err)
		require.True(f.t, snoozed, "%v", err)
	}
}

// bring handles an outcome.
func (f *fleet) bring(store string) {
	f.t.Helper()
	_ = f.next(store, joins.OutcomeTopic)
}

// lose handles a message and loses the ack, as a process does that dies.
func (f *fleet) lose(store, topic string) {
	f.t.Helper()
	rec := f.mustClaim(store, topic)
	_ = f.handle(store, rec)
	require.NoError(f.t, f.stores[store].Release(f.t.Context(), []outmill.Lease{rec.Lease()}))
}

// hold keeps the records of a topic from being handled until giveBack.
func (f *fleet) hold(store, topic string) {
	f.t.Helper()
	f.held = append(f.held, heldRecord{store, f.mustClaim(store, topic)})
}

func (f *fleet) giveBack() {
	f.t.Helper()
	for _, held := range f.held {
		require.NoError(f.t, f.stores[held.store].Release(f.t.Context(), []outmill.Lease{held.record.Lease()}))
	}
	f.held = nil
}

type heldRecord struct {
	store  string
	record *outmill.Record
}

func (f *fleet) forge(store, topic string, payload []byte) {
	f.t.Helper()
	require.NoError(f.t, f.stores[store].Append(f.t.Context(), &outmill.Record{Topic: topic, Payload: payload}))
}

// forgeLocal starts, in a store, the join that belongs to the outcome of another one, with its
// step completed.
func (f *fleet) forgeLocal(store string, outcome *outmill.Record) {
	f.t.Helper()
	p := fields(f.t, outcome.Payload)
	forged := joins.Join{
		ID: outcome.WaitsFor, ExpectedSteps: 1, GroupingKey: p["join"].(string), Metadata: map[string]string{"outmill_join_home": home},
	}
	require.NoError(f.t, f.joins(store).StartJoin(f.t.Context(), &forged))
	require.NoError(f.t, f.stores[store].Append(f.t.Context(), &outmill.Record{Topic: work, Joins: []outmill.JoinID{forged.ID}}))
	f.do(store, true)
}

// localJoins returns the joins of a store that wait for single steps of a join.
func (f *fleet) localJoins(store string, id outmill.JoinID) []*roles.Join {
	f.t.Helper()
	found, err := f.joins(store).ListJoins(f.t.Context(), roles.JoinQuery{GroupingKey: id.String()})
	require.NoError(f.t, err)
	require.NotEmpty(f.t, found)
	return found
}
