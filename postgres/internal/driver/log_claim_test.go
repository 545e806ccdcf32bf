package driver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	contract "github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest"
)

// byPages hides that the driver is a contract.Taker.
type byPages struct{ *driver.Driver }

// Take has another signature.
func (byPages) Take() {}

var _ contract.DB = byPages{}

// A store whose claims all go by pages keeps each sentence, too.
func TestConformance_LogByPages_Variant(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "the whole suite again, without claims of their own")
	_, takes := any(byPages{}).(contract.Taker)
	require.False(t, takes)
	s := &suite{t: t, config: connect(t, postgrestest.Database(t), 40, nil).Config(), pages: true}
	storetest.Run(t, s.engine())
}

// tryTake has each claim be one of its own, if it can, whatever the claims before it were.
type tryTake struct{ *driver.Driver }

func (d tryTake) Take(ctx context.Context, take contract.Take) ([]contract.Taken, bool, error) {
	d.ForgetRefusals()
	return d.Driver.Take(ctx, take)
}

var _ contract.Taker = tryTake{}

// A store whose claims take rows beside held and paused ones as often as they may keeps each sentence, too.
func TestConformance_LogTaken_Variant(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "the whole suite again, with claims of their own wherever they are possible")
	s := &suite{t: t, config: connect(t, postgrestest.Database(t), 40, nil).Config(), takes: true}
	storetest.Run(t, s.engine())
}

// taking counts the claims of their own, and those that were refused.
type taking struct {
	*driver.Driver
	taken, refused int
}

func (d *taking) Take(ctx context.Context, take contract.Take) ([]contract.Taken, bool, error) {
	rows, taken, err := d.Driver.Take(ctx, take)
	if taken {
		d.taken++
	} else {
		d.refused++
	}
	return rows, taken, err
}

// takingWorld is a topic of a store.
type takingWorld struct {
	*testing.T
	logged
	counts *taking
	topic  string
	owner  outmill.OwnerToken
	change func(*outmill.ClaimRequest)
	// open is a transaction that has appended.
	open pgx.Tx
}

func (w *takingWorld) append(key string, change ...func(r *outmill.Record)) *outmill.Record {
	w.Helper()
	r := &outmill.Record{Topic: w.topic, Key: key, Payload: []byte("payload of " + key)}
	for _, c := range change {
		c(r)
	}
	require.NoError(w, w.Append(w.Context(), r))
	return r
}

func (w *takingWorld) claim(change ...func(*outmill.ClaimRequest)) []*outmill.Record {
	w.Helper()
	req := outmill.ClaimRequest{
		Owner: w.owner, Worker: "worker", Group: "readers", Topics: outmill.Topics{Include: []string{w.topic}}, Limit: 10, Lease: time.Hour,
		Order: outmill.OrderKey,
	}
	for _, c := range append(change, w.change) {
		if c != nil {
			c(&req)
		}
	}
	got, err := w.Claim(w.Context(), req)
	require.NoError(w, err)
	return got
}

// keys claims, and returns the keys of what it has got.
func (w *takingWorld) keys(change ...func(*outmill.ClaimRequest)) []string {
	w.Helper()
	keys := []string{}
	for _, r := range w.claim(change...) {
		keys = append(keys, r.Key)
	}
	return keys
}

func another(req *outmill.ClaimRequest) { req.Owner = outmill.NewOwnerToken() }

func openTaking(t *testing.T) (logged, *taking) {
	t.Helper()
	s := openLogged(t)
	d := &taking{Driver: s.driver}
	s.Engine = engine.New(d, engine.Config{})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: "readers"}))
	return s, d
}

// takingCases say what a topic has, what a claim of it gives, and whether it is one of its own.
var takingCases = map[string]struct {
	given  func(w *takingWorld)
	change func(*outmill.ClaimRequest)
	want   []string
	taken  bool
}{
	"rows of the log": {func(w *takingWorld) { w.append("b"); w.append("a"); w.append("") }, nil, []string{"b", "a", ""}, true},
	"rows of the log, in the order of the topic": {func(w *takingWorld) { w.append("b"); w.append("a") },
		func(r *outmill.ClaimRequest) { r.Order = outmill.OrderTopic }, []string{"b", "a"}, true},
	"rows of the log, without an order": {func(w *takingWorld) { w.append("b"); w.append("a"); w.append("") },
		unordered, []string{"b", "a", ""}, true},
	"another owner has the key, without an order": {func(w *takingWorld) { w.append("a"); w.claim(another); w.append("a") },
		unordered, []string{"a"}, true},
	"a retry waits, without an order": {func(w *takingWorld) {
		w.append("a")
		got := w.claim()
		require.NoError(w, w.Abandon(w.Context(), []outmill.Settlement{{Lease: got[0].Lease(), Delay: time.Hour}}))
		w.append("a")
	}, unordered, []string{"a"}, true},
	"a retry is due, without an order": {func(w *takingWorld) {
		w.append("a")
		got := w.claim()
		require.NoError(w, w.Abandon(w.Context(), []outmill.Settlement{{Lease: got[0].Lease()}}))
		w.append("b")
	}, unordered, []string{"a", "b"}, false},
	"a lease has ended, without an order": {func(w *takingWorld) {
		w.append("a")
		w.claim(func(r *outmill.ClaimRequest) { r.Lease = time.Microsecond })
		w.append("b")
	}, unordered, []string{"a", "b"}, false},
	"a record is held, without an order": {func(w *takingWorld) {
		w.append("a")
		w.claim(another)
		w.append("a")
		w.claim(func(r *outmill.ClaimRequest) { r.Order = outmill.OrderKey })
	}, unordered, []string{"a"}, false},
	"nothing": {func(w *takingWorld) {
		w.append("a")
		require.NoError(w, w.Ack(w.Context(), "worker", leasesOf(w.claim())))
	}, nil, []string{}, true},
	"another owner has another key": {func(w *takingWorld) { w.append("a"); w.claim(another); w.append("b") }, nil, []string{"b"}, true},
	"another owner has the key": {func(w *takingWorld) {
		w.append("a")
		w.claim(another)
		w.append("a")
		w.append("b")
	}, nil, []string{"b"}, false},
	"another owner has had the key": {func(w *takingWorld) {
		w.append("a")
		w.append("b")
		got := w.claim(another)
		require.NoError(w, w.Ack(w.Context(), "worker", leasesOf(got)[:1]))
		w.append("a")
	}, nil, []string{"a"}, true},
	"the same owner has the key": {func(w *takingWorld) { w.append("a"); w.claim(); w.append("a") }, nil, []string{"a"}, true},
	"another owner has the topic": {func(w *takingWorld) { w.append("a"); w.claim(another); w.append("b") },
		func(r *outmill.ClaimRequest) { r.Order = outmill.OrderTopic }, []string{}, false},
	"a lease has ended": {func(w *takingWorld) {
		w.append("a")
		w.claim(func(r *outmill.ClaimRequest) { r.Lease = time.Microsecond })
		w.append("a")
	}, nil, []string{"a", "a"}, false},
	"a retry waits": {func(w *takingWorld) {
		w.append("a")
		got := w.claim()
		require.NoError(w, w.Abandon(w.Context(), []outmill.Settlement{{Lease: got[0].Lease(), Delay: time.Hour}}))
		w.append("a")
		w.append("b")
	}, nil, []string{"b"}, false},
	"a retry of another key waits": {func(w *takingWorld) {
		w.append("a")
		got := w.claim()
		require.NoError(w, w.Abandon(w.Context(), []outmill.Settlement{{Lease: got[0].Lease(), Delay: time.Hour}}))
		w.append("b")
	}, nil, []string{"b"}, true},
	"a retry waits of a record without a key": {func(w *takingWorld) {
		w.append("")
		got := w.claim()
		require.NoError(w, w.Abandon(w.Context(), []outmill.Settlement{{Lease: got[0].Lease(), Delay: time.Hour}}))
		w.append("")
	}, nil, []string{""}, true},
	"a retry is due": {func(w *takingWorld) {
		w.append("a")
		got := w.claim()
		require.NoError(w, w.Abandon(w.Context(), []outmill.Settlement{{Lease: got[0].Lease()}}))
		w.append("b")
	}, nil, []string{"a", "b"}, false},
	"a retry waits, and the order is that of the topic": {func(w *takingWorld) {
		w.append("a")
		got := w.claim()
		require.NoError(w, w.Abandon(w.Context(), []outmill.Settlement{{Lease: got[0].Lease(), Delay: time.Hour}}))
		w.append("b")
	}, func(r *outmill.ClaimRequest) { r.Order = outmill.OrderTopic }, []string{}, false},
	"another key is parked": {func(w *takingWorld) { w.parks(); w.append("b") }, parking, []string{"b"}, true},
	"a record is ready": {func(w *takingWorld) {
		w.append("a", func(r *outmill.Record) { r.ID = outmill.NewWorkItemID() })
		w.append("b")
	}, nil, []string{"a", "b"}, false},
	"a record is due much later": {func(w *takingWorld) {
		w.append("a", func(r *outmill.Record) { r.Delay = time.Hour })
		w.append("a")
	}, nil, []string{"a"}, true},
	"a row is deleted": {func(w *takingWorld) {
		r := w.append("a")
		w.append("b")
		_, err := w.Delete(w.Context(), w.first(r))
		require.NoError(w, err)
	}, nil, []string{"b"}, false},
	"the key is parked": {func(w *takingWorld) { w.parks(); w.append("a"); w.append("b") }, parking, []string{"b"}, false},
	"the key is parked, and the claim does not park": {func(w *takingWorld) { w.parks(); w.append("a") }, nil, []string{"a"}, true},
	"the topic is paused": {func(w *takingWorld) {
		w.append("a")
		require.NoError(w, w.Pause(w.Context(), roles.PauseScope{Topic: w.topic}, "me", "a reason"))
	}, nil, []string{}, false},
	"another key is held": {func(w *takingWorld) { w.held(); w.append("b") }, nil, []string{"b"}, true},
	"the key is held":     {func(w *takingWorld) { w.held(); w.append("a"); w.append("b") }, nil, []string{"b"}, false},
	"another key is held, and the order is that of the topic": {func(w *takingWorld) { w.held(); w.append("b") },
		func(r *outmill.ClaimRequest) { r.Order = outmill.OrderTopic }, []string{}, false},
	"a held key is free again": {func(w *takingWorld) {
		require.NoError(w, w.Ack(w.Context(), "worker", leasesOf(w.held())))
		w.append("b")
	}, nil, []string{"a", "b"}, false},
	"a claim must look at a held key": {func(w *takingWorld) {
		w.held()
		w.set("look_at = 1")
		w.append("b")
	}, nil, []string{"b"}, false},
	"more keys are held than a claim compares": {func(w *takingWorld) {
		w.held()
		_, err := w.db.Exec(w.Context(), `INSERT INTO outmill.notes (grp, topic, name, blocker, head, look_at, looks)
			SELECT grp, topic, 'k' || n, blocker, head, 0, 0 FROM outmill.notes, generate_series(1, 500) AS n WHERE topic = $1`, w.topic)
		require.NoError(w, err)
		w.append("b")
	}, nil, []string{"b"}, false},
	"another key is paused": {func(w *takingWorld) { w.pause(roles.PauseScope{Key: "z"}); w.append("a") }, nil, []string{"a"}, true},
	"the key is paused": {func(w *takingWorld) {
		w.pause(roles.PauseScope{Key: "a"})
		w.append("a")
		w.append("b")
	}, nil, []string{"b"}, false},
	"the key is paused for another group": {func(w *takingWorld) {
		w.pause(roles.PauseScope{Key: "a", Group: "others"})
		w.append("a")
	}, nil, []string{"a"}, true},
	"a paused key has a held record": {func(w *takingWorld) {
		w.pause(roles.PauseScope{Key: "a"})
		w.append("a")
		require.Empty(w, w.claim())
		w.set("look_at = 0")
		w.append("b")
	}, nil, []string{"b"}, true},
	"a paused key has a held record, without an order": {func(w *takingWorld) {
		w.pause(roles.PauseScope{Key: "a"})
		w.append("a")
		require.Empty(w, w.claim(unordered))
		w.set("look_at = 0")
		w.append("b")
	}, unordered, []string{"b"}, true},
	"a claim without an order has held a record of a paused key": {func(w *takingWorld) {
		w.pause(roles.PauseScope{Key: "a"})
		w.append("a")
		w.append("b")
		require.Len(w, w.claim(unordered), 1)
		w.set("look_at = 0")
		w.append("c")
	}, nil, []string{"c"}, false},
	"a key is not paused any more": {func(w *takingWorld) {
		w.pause(roles.PauseScope{Key: "a"})
		w.append("a")
		require.Empty(w, w.claim())
		w.set("look_at = 0")
		_, err := w.Resume(w.Context(), roles.PauseScope{Topic: w.topic, Key: "a"})
		require.NoError(w, err)
		w.append("b")
	}, nil, []string{"a", "b"}, false},
	"a row of a paused key is behind those that the claim may take": {func(w *takingWorld) {
		w.pause(roles.PauseScope{Key: "b"})
		for _, key := range []string{"a", "a", "a", "b"} {
			w.append(key, func(r *outmill.Record) { r.Payload = make([]byte, 1000) })
		}
	}, func(r *outmill.ClaimRequest) { r.MaxBytes = 3500 }, []string{"a", "a", "a"}, true},
	"the key is paused, without an order": {func(w *takingWorld) {
		w.pause(roles.PauseScope{Key: "a"})
		w.append("a")
		w.append("b")
	}, unordered, []string{"b"}, false},
	"the tenant is paused, without an order": {func(w *takingWorld) {
		w.pause(roles.PauseScope{TenantID: "acme"})
		w.append("a", func(r *outmill.Record) { r.TenantID = "acme" })
		w.append("b")
	}, unordered, []string{"b"}, false},
	"the same owner blocks a held key": {func(w *takingWorld) {
		w.held()
		w.set("blocker = '" + w.owner.String() + "'")
		w.append("b")
	}, nil, []string{"b"}, false},
	"a retry blocks a held key, and the claim skips it": {func(w *takingWorld) {
		w.held()
		w.set("blocker = 'waiting'")
		w.append("b")
	}, func(r *outmill.ClaimRequest) { r.KeyPolicy = outmill.KeySkip }, []string{"b"}, false},
	"many keys are paused, and have held records": {func(w *takingWorld) {
		const most = 100
		for i := range most {
			w.pause(roles.PauseScope{Key: fmt.Sprint(i)})
			w.append(fmt.Sprint(i))
		}
		held := 0
		for held < most {
			require.Empty(w, w.keys())
			require.NoError(w, w.db.QueryRow(w.Context(), "SELECT count(*) FROM outmill.notes WHERE topic = $1", w.topic).Scan(&held))
		}
		w.set("look_at = 0")
		w.append("b")
	}, nil, []string{"b"}, true},
	"another tenant is paused": {func(w *takingWorld) {
		w.pause(roles.PauseScope{TenantID: "zoo"})
		w.append("a", func(r *outmill.Record) { r.TenantID = "acme" })
	}, nil, []string{"a"}, true},
	"the tenant is paused": {func(w *takingWorld) {
		w.pause(roles.PauseScope{TenantID: "acme"})
		w.append("a", func(r *outmill.Record) { r.TenantID = "acme" })
		w.append("b")
	}, nil, []string{"b"}, false},
	"a paused tenant has a held record without a key": {func(w *takingWorld) {
		w.pause(roles.PauseScope{TenantID: "acme"})
		w.append("", func(r *outmill.Record) { r.TenantID = "acme" })
		require.Empty(w, w.claim())
		w.set("look_at = 0")
		w.append("b")
	}, nil, []string{"b"}, true},
	"a row of a paused key, in the order of the topic": {func(w *takingWorld) {
		w.pause(roles.PauseScope{Key: "b"})
		w.append("a")
		w.append("b")
		w.append("c")
	}, func(r *outmill.ClaimRequest) { r.Order = outmill.OrderTopic }, []string{"a"}, false},
	"a row is deleted behind those that the claim may take": {func(w *takingWorld) {
		w.append("a")
		w.append("b")
		r := w.append("c")
		_, err := w.Delete(w.Context(), w.first(r))
		require.NoError(w, err)
	}, func(r *outmill.ClaimRequest) { r.Limit = 2 }, []string{"a", "b"}, true},
	"many rows are deleted behind those that the claim may take": {func(w *takingWorld) {
		w.append("a")
		w.deleteMany()
	}, func(r *outmill.ClaimRequest) { r.Limit = 1 }, []string{"a"}, true},
	"many rows are deleted before those that the claim may take": {func(w *takingWorld) {
		w.deleteMany()
		w.append("b")
	}, nil, []string{"b"}, false},
	"another topic is paused": {func(w *takingWorld) {
		w.append("a")
		require.NoError(w, w.Pause(w.Context(), roles.PauseScope{Topic: "no " + w.topic}, "me", "a reason"))
	}, nil, []string{"a"}, true},
	"a row is larger than what a claim reads before its lease is stored": {func(w *takingWorld) {
		w.append("a", func(r *outmill.Record) { r.Payload = make([]byte, 1<<20) })
		w.append("b")
	}, nil, []string{"a", "b"}, false},
	"the rows are larger than the claim may take": {func(w *takingWorld) {
		for _, key := range []string{"a", "b", "c", "d"} {
			w.append(key, func(r *outmill.Record) { r.Payload = make([]byte, 1000) })
		}
	}, func(r *outmill.ClaimRequest) { r.MaxBytes = 3500 }, []string{"a", "b", "c"}, true},
	"the first row is larger than the claim may take": {func(w *takingWorld) { w.append("a"); w.append("b") },
		func(r *outmill.ClaimRequest) { r.MaxBytes = 1 }, []string{"a"}, false},
	"a row is larger than the publisher takes": {func(w *takingWorld) {
		w.append("a", func(r *outmill.Record) { r.Payload = make([]byte, 20_000) })
		w.append("b")
	}, func(r *outmill.ClaimRequest) { r.MaxRecord = 1000 }, []string{"b"}, false},
	"metadata that cannot be decoded": {func(w *takingWorld) {
		w.append("a", func(r *outmill.Record) { r.Metadata = map[string]string{"broken": "later"} })
		for n := range 3 {
			_, err := w.db.Exec(w.Context(), fmt.Sprintf(`UPDATE outmill.log_%d SET metadata = '[]' WHERE topic = $1`, n), w.topic)
			require.NoError(w, err)
		}
		w.append("b")
	}, nil, []string{"b"}, true},
	"a row of a transaction that was open when a later one was claimed": {func(w *takingWorld) {
		tx, err := w.db.Begin(w.Context())
		require.NoError(w, err)
		require.NoError(w, w.Append(w.driver.WithTx(w.Context(), tx), &outmill.Record{Topic: w.topic, Key: "a"}))
		w.append("b")
		require.Equal(w, []string{"b"}, w.keys())
		w.append("c")
		require.NoError(w, tx.Commit(w.Context()))
	}, nil, []string{"a", "c"}, false},
}

func unordered(r *outmill.ClaimRequest) { r.Order = outmill.OrderNone }

func parking(r *outmill.ClaimRequest) { r.KeyPolicy = outmill.KeyPark }

// parks has the key a parked.
func (w *takingWorld) parks() {
	w.append("a")
	got := w.claim()
	require.NoError(w, w.Engine.Fail(w.Context(), []outmill.Settlement{{Lease: got[0].Lease(), Err: "an error", Park: true}}))
}

// held has another owner work on a record of the key a, for which a claim has held a later one. It returns the former.
func (w *takingWorld) held() []*outmill.Record {
	w.append("a")
	got := w.claim(another)
	w.append("a")
	require.Empty(w, w.keys())
	w.set("look_at = 0")
	return got
}

// set changes the notes of the topic.
func (w *takingWorld) set(change string) {
	result, err := w.db.Exec(w.Context(), "UPDATE outmill.notes SET "+change+" WHERE topic = $1", w.topic)
	require.NoError(w, err)
	require.Positive(w, result.RowsAffected())
}

// pause pauses a part of the topic.
func (w *takingWorld) pause(scope roles.PauseScope) {
	scope.Topic = w.topic
	require.NoError(w, w.Pause(w.Context(), scope, "me", "a reason"))
}

// deleteMany deletes so many rows that one range of places has them.
func (w *takingWorld) deleteMany() {
	ids := make([]outmill.WorkItemID, 100)
	for i := range ids {
		ids[i] = w.first(w.append("many"))
	}
	n, err := w.Delete(w.Context(), ids...)
	require.NoError(w, err)
	require.Equal(w, len(ids), n)
	ranges := 0
	require.NoError(w, w.db.QueryRow(w.Context(), "SELECT count(*) FROM outmill.skip_ranges WHERE topic = $1", w.topic).Scan(&ranges))
	require.Positive(w, ranges)
}

// first is the id of the record of the group.
func (w *takingWorld) first(r *outmill.Record) outmill.WorkItemID {
	list, err := w.List(w.Context(), outmill.ListQuery{Group: "readers", MessageID: r.MessageID, Limit: 10})
	require.NoError(w, err)
	require.Len(w, list, 1)
	return list[0].ID
}

func leasesOf(records []*outmill.Record) []outmill.Lease {
	leases := make([]outmill.Lease, len(records))
	for i, r := range records {
		leases[i] = r.Lease()
	}
	return leases
}

// A claim is one of its own exactly if the topic has nothing that needs a page, and then too it gives what it should.
func TestTake_IsTakenWhereNothingElseDecides(t *testing.T) {
	t.Parallel()
	s, counts := openTaking(t)
	for name, c := range takingCases {
		t.Run(name, func(t *testing.T) {
			w := &takingWorld{T: t, logged: s, counts: counts, topic: name, owner: outmill.NewOwnerToken()}
			c.given(w)
			s.driver.ForgetRefusals()
			before := *counts
			require.Equal(t, c.want, w.keys(c.change))
			if taken, refused := counts.taken-before.taken, counts.refused-before.refused; c.taken {
				require.Positive(t, taken)
				require.Zero(t, refused)
			} else {
				require.Zero(t, taken)
			}
		})
	}
}
