package mongo_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	driverrows "github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// recorder keeps the commands of a client, by the call that sent them.
type recorder struct {
	mu       sync.Mutex
	doing    string
	commands []command
}

type command struct {
	doing, name string
	body        bson.Raw
}

func (r *recorder) started(_ context.Context, e *event.CommandStartedEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.doing != "" && e.CommandName != "endSessions" {
		r.commands = append(r.commands, command{r.doing, e.CommandName, slices.Clone(e.Command)})
	}
}

// while keeps the commands that do sends, and returns their number.
func (r *recorder) while(doing string, do func()) int {
	r.mu.Lock()
	before := len(r.commands)
	r.doing = doing
	r.mu.Unlock()
	do()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doing = ""
	return len(r.commands) - before
}

// recorded is a store on the stand's collections whose commands are kept.
func (s stand) recorded(t *testing.T, config mongo.Config) (*mongo.Store, *recorder) {
	t.Helper()
	r := &recorder{}
	config.Database = s.db.Name()
	config.WithoutChangeStream = true
	store := newStore(t, clientOf(t, options.Client().ApplyURI(mongotest.Server(t)).SetMonitor(&event.CommandMonitor{Started: r.started})),
		config)
	_, err := store.Groups(t.Context()) // the schema is checked, and the server's time known
	require.NoError(t, err)
	return store, r
}

// like has an example value for each field of a $lookup.
var like = map[string]any{"key": "key3", "topic": "topic1", "join": bson.Binary{Subtype: 4, Data: make([]byte, 16)}}

// variables has an example value for each variable of a $lookup.
var variables = map[string]any{
	"$$g": readers, "$$t": "parked", "$$k": "second", "$$s": bson.Timestamp{T: 1}, "$$at": time.Now().UnixMicro(),
}

// filled replaces the variables of a $lookup.
func filled(query any) any {
	switch query := query.(type) {
	case bson.D:
		all := slices.Clone(query)
		for i, e := range all {
			all[i].Value = filled(e.Value)
		}
		return all
	case bson.A:
		all := slices.Clone(query)
		for i, value := range all {
			all[i] = filled(value)
		}
		return all
	case string:
		if value, is := variables[query]; is {
			return value
		}
	}
	return query
}

// asked returns the queries of a command, each as a command that can be explained.
func (c command) asked(t *testing.T) []bson.D {
	t.Helper()
	var body bson.D
	require.NoError(t, bson.Unmarshal(c.body, &body))
	collection := value(body, c.name)
	var all []bson.D
	switch c.name {
	case "update", "delete":
		list := c.name + "s"
		for _, one := range value(body, list).(bson.A) {
			all = append(all, bson.D{{Key: c.name, Value: collection}, {Key: list, Value: bson.A{one}}})
		}
	case "findAndModify":
		all = append(all, bson.D{{Key: "find", Value: collection}, {Key: "filter", Value: value(body, "query")}})
	case "find":
		find := bson.D{{Key: "find", Value: collection}}
		for _, name := range []string{"filter", "sort", "limit", "projection"} {
			if v := value(body, name); v != nil {
				find = append(find, bson.E{Key: name, Value: v})
			}
		}
		all = append(all, find)
	case "aggregate":
		all = aggregations(collection, value(body, "pipeline").(bson.A))
	}
	return all
}

// aggregations returns an aggregation and the aggregations in its stages.
func aggregations(from any, stages bson.A) []bson.D {
	var all []bson.D
	var own bson.A
	for _, stage := range stages {
		switch e := stage.(bson.D)[0]; e.Key {
		case "$unionWith":
			with := e.Value.(bson.D)
			all = append(all, aggregations(value(with, "coll"), value(with, "pipeline").(bson.A))...)
		case "$lookup":
			join := e.Value.(bson.D)
			field, byField := value(join, "foreignField").(string)
			if !byField {
				all = append(all, aggregations(value(join, "from"), filled(value(join, "pipeline")).(bson.A))...)
				continue
			}
			// The server joins the condition on the key and the first stage.
			same := bson.D{{Key: field, Value: like[field]}}
			inside, _ := value(join, "pipeline").(bson.A)
			if len(inside) > 0 {
				same, inside = append(value(inside[0].(bson.D), "$match").(bson.D), same...), inside[1:]
			}
			all = append(all, aggregations(value(join, "from"), append(bson.A{bson.D{{Key: "$match", Value: same}}}, inside...))...)
		default:
			own = append(own, stage)
		}
	}
	return append(all, bson.D{{Key: "aggregate", Value: from}, {Key: "pipeline", Value: own}, {Key: "cursor", Value: bson.D{}}})
}

func value(d bson.D, name string) any {
	for _, e := range d {
		if e.Key == name {
			return e.Value
		}
	}
	return nil
}

// plan is the server's explanation of a query.
type plan struct {
	stages  []string
	indexes []string
	keys    int64
	docs    int64
}

func explained(t *testing.T, db *driver.Database, query bson.D) plan {
	t.Helper()
	var answer bson.D
	require.NoError(t, db.RunCommand(t.Context(),
		bson.D{{Key: "explain", Value: query}, {Key: "verbosity", Value: "executionStats"}}).Decode(&answer), "%v", query)
	var p plan
	p.read(answer, false)
	return p
}

// read reads an answer, whose form depends on the server's version.
func (p *plan) read(value any, winning bool) {
	switch value := value.(type) {
	case bson.D:
		for _, e := range value {
			switch {
			case e.Key == "rejectedPlans" || e.Key == "executionStages" || e.Key == "command":
			case e.Key == "totalKeysExamined":
				p.keys += number(e.Value)
			case e.Key == "totalDocsExamined":
				p.docs += number(e.Value)
			case winning && e.Key == "stage" && isText(e.Value):
				p.stages = append(p.stages, e.Value.(string))
			case winning && e.Key == "indexName" && isText(e.Value):
				p.indexes = append(p.indexes, e.Value.(string))
			case e.Key == "$sort":
				p.stages = append(p.stages, "SORT")
			default:
				p.read(e.Value, winning || e.Key == "winningPlan")
			}
		}
	case bson.A:
		for _, one := range value {
			p.read(one, winning)
		}
	}
}

func isText(value any) bool {
	_, is := value.(string)
	return is
}

func number(value any) int64 {
	switch n := value.(type) {
	case int32:
		return int64(n)
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}

// crowded fills the collections with n records in every stage, of several topics, and some that are due, which the calls use.
func (s stand) crowded(t *testing.T, n int) {
	t.Helper()
	const atOnce = 5000
	now := time.Now().UnixMicro()
	later, before := now+time.Hour.Microseconds(), now-time.Hour.Microseconds()
	for i := 0; i < n; i += atOnce {
		documents := make([]any, atOnce)
		for j := range documents {
			id := outmill.NewWorkItemID()
			d := bson.D{
				{Key: "_id", Value: bson.Binary{Subtype: 4, Data: id[:]}}, {Key: "seq", Value: bson.Timestamp{}}, {Key: "grp", Value: readers},
				{Key: "topic", Value: fmt.Sprintf("topic%d", j%4)}, {Key: "claims", Value: int32(1)}, {Key: "created", Value: before},
				{Key: "content", Value: bson.D{{Key: "message", Value: fmt.Sprint(i + j)}, {Key: "due", Value: before}}},
			}
			stage, wake := driverrows.Ready, int64(0)
			switch j % 10 {
			case 1:
				stage, wake = driverrows.Waiting, later
			case 2:
				stage, wake = driverrows.Delayed, later
			case 3:
				stage, wake = driverrows.Leased, later
				d = append(d, bson.E{Key: "owner", Value: "somebody"})
			case 4:
				stage = driverrows.Processed
				d = append(d, bson.E{Key: "processed", Value: now})
			case 5:
				stage = driverrows.Dead
				d = append(d, bson.E{Key: "parked", Value: true})
			case 6:
				d = append(d, bson.E{Key: "expires", Value: later})
			}
			if j%5 > 0 || stage == driverrows.Dead {
				d = append(d, bson.E{Key: "key", Value: fmt.Sprintf("key%d", (i+j)%2000)})
			}
			documents[j] = append(d, bson.E{Key: "stage", Value: int32(stage)}, bson.E{Key: "wake", Value: wake})
		}
		_, err := s.records().InsertMany(t.Context(), documents)
		require.NoError(t, err)
	}
}

// everything makes each call of a store, with a batch of some records.
func (s stand) everything(t *testing.T, store *mongo.Store, doing func(name string, do func())) {
	t.Helper()
	ctx, batch := t.Context(), 100
	owner := outmill.NewOwnerToken()
	must := func(err error) { t.Helper(); require.NoError(t, err) }
	taken := map[outmill.Order][]*outmill.Record{}
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
		for _, policy := range []outmill.KeyPolicy{outmill.KeyBlock, outmill.KeySkip, outmill.KeyPark} {
			if order == outmill.OrderKey || policy == outmill.KeyBlock {
				req := claimOf(owner, batch, order)
				req.KeyPolicy = policy
				doing(fmt.Sprint("claim in order ", order, " ", policy), func() {
					found, err := store.Claim(ctx, req)
					must(err)
					taken[order] = append(taken[order], found...)
				})
			}
		}
	}
	leases := leasesOf(taken[outmill.OrderKey])
	require.Greater(t, len(leases), 106)
	doing("extend", func() { _, err := store.Extend(ctx, time.Hour, leases); must(err) })
	doing("ack", func() { must(store.Ack(ctx, "", leases[:50])) })
	doing("release", func() { must(store.Release(ctx, leases[50:100])) })
	doing("abandon", func() { must(store.Abandon(ctx, []outmill.Settlement{{Lease: leases[100], Delay: time.Hour}})) })
	doing("snooze", func() { must(store.Snooze(ctx, []outmill.Settlement{{Lease: leases[101], Delay: time.Hour}})) })
	doing("fail", func() { must(store.Fail(ctx, []outmill.Settlement{{Lease: leases[102]}})) })
	doing("park", func() { must(store.Fail(ctx, []outmill.Settlement{{Lease: leases[103], Park: true}})) })
	doing("requeue", func() { _, err := store.Requeue(ctx, leases[102].ID, leases[103].ID); must(err) })
	doing("delete", func() { _, err := store.Delete(ctx, leases[104].ID, leases[105].ID); must(err) })
	doing("reap", func() { _, err := store.ReapExpired(ctx, batch); must(err) })
	doing("expire", func() { _, err := store.ExpireDue(ctx, batch); must(err) })
	doing("delete processed", func() { _, err := store.DeleteProcessed(ctx, batch); must(err) })
	doing("delete dedup keys", func() { _, err := store.DeleteDedupKeys(ctx, batch); must(err) })
	doing("append", func() { must(store.Append(ctx, once("duplicate", "key"), one("another"))) })
	doing("get", func() { _, err := store.Get(ctx, leases[102].ID); must(err) })
	group := readers
	for _, status := range []outmill.Status{"", outmill.StatusPending, outmill.StatusProcessed, outmill.StatusDead} {
		doing("list "+string(status), func() {
			_, err := store.List(ctx, outmill.ListQuery{Status: status})
			must(err)
			_, err = store.List(ctx, outmill.ListQuery{Status: status, Topic: "topic1", Group: group})
			must(err)
		})
	}
	doing("stats", func() { _, err := store.Stats(ctx, batch); must(err) })
	doing("first waiting", func() { _, err := store.FirstWaiting(ctx, group, "topic1", batch); must(err) })
	doing("look for rest", func() {
		idle, err := store.AreIdle(ctx, []any{store})
		must(err)
		require.Equal(t, []bool{false}, idle)
	})
	doing("register and drop", func() {
		must(store.RegisterGroup(ctx, outmill.Registration{Group: "late", Topics: outmill.Topics{Include: []string{"late"}}}))
		_, err := store.DropGroup(ctx, "late")
		must(err)
	})
	doing("register for a moment", func() {
		must(store.RegisterGroup(ctx,
			outmill.Registration{Group: "brief", Worker: "w", TTL: time.Nanosecond, Topics: outmill.Topics{Include: []string{"brief"}}}))
		must(store.RegisterGroup(ctx,
			outmill.Registration{Group: "brief", Worker: "w", TTL: time.Nanosecond, Topics: outmill.Topics{Include: []string{"brief"}}}))
	})
	must(store.Append(ctx, made("brief", "brief", batch)...))
	for registrations := 0; registrations == 0; { // until its millisecond is over
		doing("expire registrations", func() {
			var records int
			var err error
			registrations, records, err = store.ExpireRegistrations(ctx, batch)
			must(err)
			require.Equal(t, batch*registrations, records)
		})
	}
	s.workbench(t, store, doing)
	s.heldKeys(t, store, doing)
	s.pauses(t, store, doing)
	s.joinsOfAllKinds(t, store, doing)
	s.transactionsOfAllKinds(t, store, doing)
}

// workbench makes the calls on dead records and on the audit.
func (s stand) workbench(t *testing.T, store *mongo.Store, doing func(name string, do func())) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) { t.Helper(); require.NoError(t, err) }
	var heads []*outmill.Record
	for _, key := range []string{"first", "second"} {
		for _, name := range numbered(key, 20) {
			must(s.Append(ctx, &outmill.Record{Topic: "parked", Key: key, MessageID: name}))
		}
		head := claimed(t, s, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, "parked"))
		must(s.Fail(ctx, []outmill.Settlement{{Lease: head[0].Lease(), Park: true}}))
		heads = append(heads, head...)
	}
	doing("list dead letters", func() { _, err := store.DeadLetters(ctx, outmill.ListQuery{}); must(err) })
	doing("list dead letters of a topic", func() {
		// The store looks at dead records by their ids, some at a time.
		query, letters := outmill.ListQuery{Topic: "parked"}, 0
		for done := false; !done; {
			page, err := store.DeadLetters(ctx, query)
			must(err)
			for _, letter := range page.Letters {
				require.Equal(t, 19, letter.Waiting)
			}
			letters += len(page.Letters)
			query.After, done = page.Next, page.Done
		}
		require.Equal(t, len(heads), letters)
	})
	doing("edit", func() {
		_, err := store.Edit(ctx, heads[0].ID, roles.Edit{Seen: storekit.FingerprintOf(heads[0]), Payload: []byte("new")})
		must(err)
	})
	doing("skip", func() { _, err := store.Skip(ctx, heads[0].ID); must(err) })
	doing("requeue a parked key", func() { _, err := store.Requeue(ctx, heads[1].ID); must(err) })
	doing("read the audit", func() {
		page, err := store.Audited(ctx, roles.AuditQuery{Limit: 2})
		must(err)
		_, err = store.Audited(ctx, roles.AuditQuery{After: page.Next})
		must(err)
	})
	doing("delete old audit entries", func() { _, err := store.DeleteOldAudit(ctx, 100); must(err) })
}

// transactionsOfAllKinds makes the calls of the inbox and of sagas.
func (s stand) transactionsOfAllKinds(t *testing.T, store *mongo.Store, doing func(name string, do func())) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) { t.Helper(); require.NoError(t, err) }
	doing("put a note", func() {
		_, err := store.PutNote(ctx, roles.Note{Consumer: "c1", Key: "new", Retention: time.Hour}, 0)
		must(err)
	})
	doing("look for a note", func() { _, err := store.HasNote(ctx, "c1", "m1"); must(err) })
	doing("delete notes", func() { _, err := store.DeleteNotes(ctx, 100); must(err) })

	type state struct{ N int }
	saga := &roles.Saga{Type: "ordersaga", Correlation: "new"}
	none := roles.SagaOptions{}
	must(store.PrepareSagas(ctx, saga.Type))
	doing("insert a saga", func() { must(store.InsertSaga(ctx, saga, &state{1}, none)) })
	doing("find a saga", func() { _, err := store.FindSaga(ctx, saga.Type, saga.Correlation, &state{}, none); must(err) })
	doing("update a saga", func() { must(store.UpdateSaga(ctx, saga, &state{2}, none)) })
	doing("update a saga and keep fields", func() {
		must(store.UpdateSaga(ctx, saga, &state{3}, roles.SagaOptions{KeepUnknown: true}))
	})
	doing("delete a saga", func() { must(store.DeleteSaga(ctx, saga, none)) })
	doing("delete finished sagas", func() { _, err := store.DeleteFinishedSagas(ctx, saga.Type, time.Hour, 100); must(err) })

	must(store.Append(ctx, &outmill.Record{Topic: "noted"}))
	found, err := store.Claim(ctx, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone, "noted"))
	must(err)
	doing("put a note of a record", func() {
		must(store.Transact(ctx, func(ctx context.Context) error {
			_, err := store.PutNote(ctx, roles.Note{Consumer: "c2", Key: "new", Retention: time.Hour, Lease: found[0].Lease()}, 0)
			return err
		}))
	})
}

// notesAndSagas inserts n notes, n notes of records that are gone, and n sagas, most of which have
// finished. One in a thousand is past its retention.
func (s stand) notesAndSagas(t *testing.T, n int) {
	t.Helper()
	require.NoError(t, s.PrepareSagas(t.Context(), "ordersaga"))
	const atOnce = 1000
	now := time.Now()
	for i := 0; i < n; i += atOnce {
		var notes, sagas []any
		for j := range atOnce {
			end, updated := now.Add(time.Hour), now
			if j == 0 {
				end, updated = now.Add(-time.Hour), now.Add(-2*time.Hour)
			}
			id := outmill.NewWorkItemID()
			for consumer, record := range map[string]string{"c1": "", "c2": id.String()} {
				notes = append(notes, bson.D{
					{Key: "_id", Value: bson.D{{Key: "kind", Value: "note"}, {Key: "key", Value: fmt.Sprint(consumer, " m", i+j)}}},
					{Key: "at", Value: end.UnixMicro()}, {Key: "made", Value: now.UnixMicro()}, {Key: "value", Value: record},
				})
			}
			sagas = append(sagas, bson.D{
				{Key: "_id", Value: bson.Binary{Subtype: 4, Data: id[:]}}, {Key: "_correlation", Value: fmt.Sprint("o", i+j)},
				{Key: "_version", Value: int64(1)}, {Key: "_finished", Value: j%10 != 1}, {Key: "_created_at", Value: updated},
				{Key: "_updated_at", Value: updated},
			})
		}
		for collection, list := range map[string][]any{"outmill_entries": notes, "ordersaga": sagas} {
			_, err := s.db.Collection(collection).InsertMany(t.Context(), list)
			require.NoError(t, err)
		}
	}
}

func (s stand) heldKeys(t *testing.T, store *mongo.Store, doing func(name string, do func())) {
	t.Helper()
	const keys = 80
	records := make([]*outmill.Record, 3*keys)
	for i := range records {
		records[i] = &outmill.Record{Topic: "held", Key: fmt.Sprint("key", i%keys)}
	}
	require.NoError(t, s.Append(t.Context(), records...))
	first := claimed(t, s, claimOf(outmill.NewOwnerToken(), keys, outmill.OrderKey, "held"))
	other := outmill.NewOwnerToken()
	doing("claim what is held", func() { require.Empty(t, claimed(t, store, claimOf(other, keys, outmill.OrderKey, "held"))) })
	doing("ack what holds others", func() { require.NoError(t, store.Ack(t.Context(), "", leasesOf(first[:keys/2]))) })
	doing("claim what was held", func() { require.NotEmpty(t, claimed(t, store, claimOf(other, keys, outmill.OrderKey, "held"))) })
	doing("list what is held", func() {
		_, err := store.List(t.Context(), outmill.ListQuery{Topic: "held"})
		require.NoError(t, err)
	})
	doing("find by message id", func() {
		_, err := store.Find(t.Context(), outmill.ListQuery{MessageID: "nowhere"})
		require.NoError(t, err)
	})
	doing("find by error text", func() {
		_, err := store.Find(t.Context(), outmill.ListQuery{ErrorText: "nowhere"})
		require.NoError(t, err)
	})
	doing("requeue by error text", func() {
		_, err := store.RequeueWhere(t.Context(), outmill.ListQuery{ErrorText: "nowhere"})
		require.NoError(t, err)
	})
}

// pauses makes the calls that stop and continue deliveries, and those under a pause.
func (s stand) pauses(t *testing.T, store *mongo.Store, doing func(name string, do func())) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) { t.Helper(); require.NoError(t, err) }
	tenant := roles.PauseScope{TenantID: "acme"}
	var records []*outmill.Record
	for i := range 200 {
		r := &outmill.Record{Topic: "paused", Key: fmt.Sprint("key", i%50), TenantID: tenant.TenantID}
		if i%2 == 0 {
			r.Key, r.Topic = "", []string{"paused", "paused too"}[i/2%2]
		}
		records = append(records, r)
	}
	must(s.Append(ctx, records...))
	doing("pause", func() { must(store.Pause(ctx, tenant, "ann", "")) })
	must(store.Pause(ctx, roles.PauseScope{Topic: "paused", Key: "another"}, "ann", ""))
	claims := func(when string) {
		for _, order := range []outmill.Order{outmill.OrderKey, outmill.OrderNone, outmill.OrderTopic} {
			doing(fmt.Sprintf("claim %s a pause in order %s", when, order), func() {
				for _, topic := range []string{"paused", "paused too"} {
					_, err := store.Claim(ctx, claimOf(outmill.NewOwnerToken(), 20, order, topic))
					must(err)
				}
				_, err := store.Claim(ctx, claimOf(outmill.NewOwnerToken(), 20, order, "nothing"))
				must(err)
			})
		}
	}
	claims("under")
	doing("stats under a pause", func() { _, err := store.Stats(ctx, 100); must(err) })
	doing("list the pauses", func() { _, err := store.Paused(ctx); must(err) })
	doing("resume", func() { _, err := store.Resume(ctx, tenant); must(err) })
	claims("after")
}

func (s stand) joinsOfAllKinds(t *testing.T, store *mongo.Store, doing func(name string, do func())) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) { t.Helper(); require.NoError(t, err) }
	join := &roles.Join{GroupingKey: "grouped", Unsealed: true}
	doing("start join", func() { must(store.StartJoin(ctx, join)) })
	step := &outmill.Record{Topic: "steps", Joins: []outmill.JoinID{join.ID}}
	other := &outmill.Record{Topic: "steps", Joins: []outmill.JoinID{join.ID}}
	doing("append steps", func() { must(store.Append(ctx, step, other)) })
	found, err := store.Claim(ctx, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone, "steps"))
	must(err)
	doing("ack a step", func() { must(store.Ack(ctx, "", leasesOf(found))) })
	doing("report", func() { must(store.ReportFailed(ctx, join.ID, other.ID)) })
	doing("seal", func() { must(store.SealJoin(ctx, join.ID, 2)) })
	doing("finish", func() { _, err := store.FinishJoin(ctx, join.ID, roles.FinishRequest{}); must(err) })
	doing("list joins", func() {
		_, err := store.ListJoins(ctx, roles.JoinQuery{})
		must(err)
		_, err = store.ListJoins(ctx, roles.JoinQuery{GroupingKey: join.GroupingKey})
		must(err)
		_, err = store.ListSteps(ctx, join.ID, outmill.WorkItemID{}, 10)
		must(err)
	})
	doing("delete joins", func() { _, err := store.DeleteJoins(ctx, 10); must(err) })
}

func TestPlans_Many(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "plans of MongoDB among tens of thousands of records")
	requirePlans(t, 20_000)
}

// requirePlans: the cost of a command must not depend on the number of records. So the server explains the plan of each query that the
// store sends, and it is answered through an index and without a sort.
func requirePlans(t *testing.T, n int) {
	t.Helper()
	s := newStand(t, mongo.Config{Retain: 24 * time.Hour})
	s.crowded(t, n)
	s.notesAndSagas(t, n)
	store, kept := s.recorded(t, mongo.Config{Retain: 24 * time.Hour})
	doing := func(name string, do func()) { kept.while(name, do) }
	s.everything(t, store, doing)
	calls, used := map[string]bool{}, map[string]bool{}
	for _, c := range kept.commands {
		calls[c.doing] = true
		for _, query := range c.asked(t) {
			p := explained(t, s.db, query)
			for _, name := range p.indexes {
				used[name] = true
			}
			said := fmt.Sprintf("%s: %s\n%v by %v, %d keys, %d documents", c.doing, clipped(query), p.stages, p.indexes, p.keys, p.docs)
			if !slices.Contains(p.stages, "LIMIT") || p.docs > 1 {
				assert.NotContains(t, p.stages, "COLLSCAN", said)
			}
			// Notes of a line are sorted, its rows that are held under keys or pauses, and those that wait in its own order.
			text := fmt.Sprint(query)
			if !strings.Contains(text, "outmill_notes") && !strings.Contains(text, `"under"`) && !strings.Contains(text, `"$or":[{"expires"`) {
				assert.NotContains(t, p.stages, "SORT", said)
			}
			assert.LessOrEqual(t, max(p.keys, p.docs), int64(roles.MaxExamined), said)
		}
	}
	require.Greater(t, len(calls), 70)
	for _, name := range []string{"line", "keyed", "parked", "held", "leased", "unrouted", "expiring", "processed", "waiters", "blockers",
		"looks", "ends", "outmill_correlation", "outmill_finished"} {
		require.Contains(t, used, name, "no query uses the index")
	}
}

func clipped(query bson.D) string {
	text := fmt.Sprint(query)
	return text[:min(len(text), 1500)]
}
