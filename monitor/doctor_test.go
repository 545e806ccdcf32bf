package monitor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storekit"
)

func examine(t *testing.T, store outmill.Inspector, config monitor.DoctorConfig) monitor.Report {
	t.Helper()
	report, err := monitor.Doctor(t.Context(), store, config)
	require.NoError(t, err)
	for _, p := range report.Problems {
		require.NotEmpty(t, p.Text)
		require.NotEmpty(t, p.Remedy)
	}
	return report
}

// kindsOf leaves out old transactions: the servers may have those of other tests.
func kindsOf(report monitor.Report) []string {
	kinds := []string{}
	for _, p := range report.Problems {
		if p.Kind != "old_transaction" {
			kinds = append(kinds, p.Kind)
		}
	}
	return kinds
}

// one returns the only problem of the kind.
func one(t *testing.T, report monitor.Report, kind string) monitor.Problem {
	t.Helper()
	var found []monitor.Problem
	for _, p := range report.Problems {
		if p.Kind == kind {
			found = append(found, p)
		}
	}
	require.Len(t, found, 1, "%s: %+v", kind, report.Problems)
	return found[0]
}

// later is a store at which groups were last seen an hour earlier.
type later struct{ outmill.Inspector }

func (l later) Groups(ctx context.Context) ([]outmill.GroupInfo, error) {
	groups, err := l.Inspector.Groups(ctx)
	for i := range groups {
		groups[i].SeenAt = groups[i].SeenAt.Add(-time.Hour)
	}
	return groups, err
}

// gone is later, and its workers were last seen an hour earlier too.
type gone struct{ outmill.Inspector }

func (g gone) Groups(ctx context.Context) ([]outmill.GroupInfo, error) {
	groups, err := later(g).Groups(ctx)
	for i := range groups {
		for j := range groups[i].Workers {
			groups[i].Workers[j].SeenAt = groups[i].Workers[j].SeenAt.Add(-time.Hour)
		}
	}
	return groups, err
}

// dying is a store that has one dead record more at each count.
type dying struct {
	outmill.Inspector
	counts *int
}

func (d dying) Stats(context.Context, int) ([]outmill.TopicStats, error) {
	*d.counts++
	return []outmill.TopicStats{{Group: "billing", Topic: "orders", Dead: *d.counts}}, nil
}

// examined is a store whose database answers as told.
type examined struct {
	outmill.Inspector
	found roles.Examination
	err   error
}

func (e examined) Examine(context.Context, roles.ExamineRequest) (roles.Examination, error) {
	return e.found, e.err
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	orders := outmill.Topics{Include: []string{"orders"}}

	t.Run("a store that works has no problems", func(t *testing.T) {
		t.Parallel()
		store := open(t, sqlite.Config{EnsureSchema: true})
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: "billing", Topics: orders, Worker: "host:1"}))
		appendOne(t, store)
		report := examine(t, store, monitor.DoctorConfig{Name: "shop"})
		require.Equal(t, monitor.Report{Store: "shop", Status: "ok", Problems: []monitor.Problem{}}, report)
	})

	t.Run("a missing schema is one failure", func(t *testing.T) {
		t.Parallel()
		report := examine(t, open(t, sqlite.Config{}), monitor.DoctorConfig{})
		require.Equal(t, []string{"schema_missing"}, kindsOf(report))
		require.False(t, report.Ready())
	})

	t.Run("what workers report is one problem for a topic, with their number, until they are gone", func(t *testing.T) {
		t.Parallel()
		store := open(t, sqlite.Config{EnsureSchema: true})
		for _, worker := range []string{"host:1", "host:2"} {
			require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{
				Group: "forwarder", Topics: orders, Worker: worker, Problems: map[string]string{"": "the broker is away", "orders": "it refuses"},
			}))
		}
		report := examine(t, store, monitor.DoctorConfig{})
		require.Equal(t, []string{"breaker_open", "topics_held"}, kindsOf(report))
		require.Contains(t, report.Problems[0].Text, "the broker is away")
		require.Contains(t, report.Problems[0].Text, "2 workers report it")
		require.Equal(t, "orders", report.Problems[1].Topic)

		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: "forwarder", Topics: orders, Worker: "host:1"}))
		report = examine(t, store, monitor.DoctorConfig{})
		require.Equal(t, "host:2", one(t, report, "topics_held").Subject)
		require.NotContains(t, one(t, report, "topics_held").Text, "workers report")
		require.Equal(t, []string{"group_unseen"}, kindsOf(examine(t, gone{store}, monitor.DoctorConfig{})))
	})

	t.Run("a topic that no group reads", func(t *testing.T) {
		t.Parallel()
		store := open(t, sqlite.Config{EnsureSchema: true})
		appendOne(t, store)
		p := one(t, examine(t, store, monitor.DoctorConfig{}), "topic_unread")
		require.Equal(t, "orders", p.Topic)
		require.Equal(t, monitor.Warning, p.Severity)
		require.Contains(t, p.Text, "1 record waits")
		require.False(t, p.Since.IsZero())
	})

	t.Run("a topic that its group does not select any more", func(t *testing.T) {
		t.Parallel()
		store := open(t, sqlite.Config{EnsureSchema: true})
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: "billing", Topics: orders, TTL: time.Millisecond}))
		appendOne(t, store)
		found, err := store.Claim(t.Context(), outmill.ClaimRequest{
			Owner: outmill.NewOwnerToken(), Group: "billing", Topics: orders, Limit: 1, Lease: time.Hour,
		})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			ended, _, err := store.ExpireRegistrations(t.Context(), 10)
			require.NoError(t, err)
			return ended == 1
		}, time.Minute, time.Millisecond)
		require.Empty(t, kindsOf(examine(t, store, monitor.DoctorConfig{})), "a leased record is in work")
		require.NoError(t, store.Abandon(t.Context(), []outmill.Settlement{{Lease: found[0].Lease()}}))
		p := one(t, examine(t, store, monitor.DoctorConfig{}), "topic_unread")
		require.Equal(t, []string{"billing", "orders"}, []string{p.Group, p.Topic})
	})

	t.Run("a group without a worker, with its last one and when it was seen", func(t *testing.T) {
		t.Parallel()
		store := open(t, sqlite.Config{EnsureSchema: true})
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: "billing", Topics: orders, Worker: "host:1"}))
		appendOne(t, store)
		p := one(t, examine(t, later{store}, monitor.DoctorConfig{}), "group_unseen")
		require.Equal(t, "billing", p.Group)
		require.Contains(t, p.Text, `"host:1"`)
		require.Contains(t, p.Text, "1 record waits")
		require.InDelta(t, time.Hour, time.Since(p.Since), float64(time.Minute))
		require.Empty(t, kindsOf(examine(t, later{store}, monitor.DoctorConfig{Unseen: 2 * time.Hour})))
	})

	t.Run("a record that has been due for too long", func(t *testing.T) {
		t.Parallel()
		store := open(t, sqlite.Config{EnsureSchema: true})
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: "billing", Topics: orders}))
		appendOne(t, store)
		p := one(t, examine(t, aged{store}, monitor.DoctorConfig{}), "oldest_due")
		require.Equal(t, []string{"billing", "orders"}, []string{p.Group, p.Topic})
		require.Contains(t, p.Remedy, "worker of the group")
		require.Empty(t, kindsOf(examine(t, aged{store}, monitor.DoctorConfig{MaxAge: 2 * time.Hour})))
	})

	t.Run("dead records, and that they rise between two counts", func(t *testing.T) {
		t.Parallel()
		store := open(t, sqlite.Config{EnsureSchema: true})
		killOne(t, store)
		p := one(t, examine(t, store, monitor.DoctorConfig{}), "dead_records")
		require.Equal(t, []string{outmill.DefaultGroup, "orders"}, []string{p.Group, p.Topic})
		require.Contains(t, p.Text, "1 record")
		report := examine(t, dying{store, new(int)}, monitor.DoctorConfig{Watch: time.Millisecond})
		require.Contains(t, one(t, report, "dead_rising").Text, "risen by 1 in 1ms")
		require.NotContains(t, kindsOf(examine(t, store, monitor.DoctorConfig{Watch: time.Millisecond})), "dead_rising")
	})

	t.Run("a thousand topics make a report that can be read", func(t *testing.T) {
		t.Parallel()
		store := open(t, sqlite.Config{EnsureSchema: true})
		records := make([]*outmill.Record, 1000)
		for i := range records {
			records[i] = &outmill.Record{Topic: fmt.Sprintf("topic%d", i)}
		}
		require.NoError(t, store.Append(t.Context(), records...))
		report := examine(t, store, monitor.DoctorConfig{})
		require.Len(t, report.Problems, 11)
		require.Contains(t, report.Problems[10].Text, "990 more topics")
	})

	t.Run("a broker that does not answer is a failure and comes first", func(t *testing.T) {
		t.Parallel()
		store := open(t, sqlite.Config{EnsureSchema: true})
		appendOne(t, store)
		away := func(context.Context) error { return errors.New("connection refused") }
		report := examine(t, store, monitor.DoctorConfig{Broker: away})
		require.Equal(t, []string{"broker_unreachable", "topic_unread"}, kindsOf(report))
		require.Equal(t, "failure", report.Status)
		require.Contains(t, report.Problems[0].Text, "connection refused")
	})

	t.Run("the findings of the database and what it could not examine are in the report", func(t *testing.T) {
		t.Parallel()
		store := open(t, sqlite.Config{EnsureSchema: true})
		since := time.Now().Add(-time.Hour)
		found := roles.Examination{Unchecked: []string{"No right."}}
		found.Add(roles.Finding{Code: "lock_wait", Failure: true, Subject: "session 7", Text: "x", Remedy: "y", Since: since, Store: "acme"})
		report := examine(t, examined{store, found, nil}, monitor.DoctorConfig{})
		require.Equal(t, []monitor.Problem{{
			Kind: "lock_wait", Severity: monitor.Failure, Subject: "session 7", Text: "x", Remedy: "y", Since: since.UTC(), Store: "acme",
		}}, report.Problems)
		require.Equal(t, []string{"No right."}, report.Unchecked)
	})

	t.Run("what fails is not checked, unless nothing works", func(t *testing.T) {
		t.Parallel()
		store := open(t, sqlite.Config{EnsureSchema: true})
		report := examine(t, examined{store, roles.Examination{}, errors.New("no catalog")}, monitor.DoctorConfig{})
		require.Len(t, report.Unchecked, 1)
		require.Contains(t, report.Unchecked[0], "no catalog")
		report = examine(t, examined{Inspector: broken{store}}, monitor.DoctorConfig{})
		require.Len(t, report.Unchecked, 1)
		require.Contains(t, report.Unchecked[0], "not counted")
		_, err := monitor.Doctor(t.Context(), examined{broken{store}, roles.Examination{}, errors.New("no catalog")}, monitor.DoctorConfig{})
		require.ErrorContains(t, err, "no catalog")
		require.ErrorContains(t, err, "refused")
		require.NoError(t, store.Close())
		_, err = monitor.Doctor(t.Context(), store, monitor.DoctorConfig{})
		require.ErrorIs(t, err, outmill.ErrClosed)
	})

	t.Run("a store without the role is counted all the same", func(t *testing.T) {
		t.Parallel()
		store := open(t, sqlite.Config{EnsureSchema: true})
		report := examine(t, aged{store}, monitor.DoctorConfig{})
		require.True(t, slices.ContainsFunc(report.Unchecked, func(s string) bool { return strings.Contains(s, "roles.Examiner") }))
	})

	t.Run("settings that make no sense are refused by their name", func(t *testing.T) {
		t.Parallel()
		store := open(t, sqlite.Config{})
		for name, config := range map[string]monitor.DoctorConfig{
			"MaxAge": {MaxAge: -1}, "Unseen": {Unseen: -1}, "OpenTransaction": {OpenTransaction: -1}, "LockWait": {LockWait: -1},
			"ClockDifference": {ClockDifference: -1}, "Watch": {Watch: -1}, "Timeout": {Timeout: -1}, "QueueUsage": {QueueUsage: 2},
			"Tasks": {Tasks: []roles.Task{"sing"}},
		} {
			_, err := monitor.Doctor(t.Context(), store, config)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
			require.ErrorContains(t, err, name)
		}
		_, err := monitor.Doctor(t.Context(), nil, monitor.DoctorConfig{})
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	})
}

// batchTaker is a publisher of batches.
type batchTaker struct{ message.Publisher }

func (batchTaker) PublishBatch(context.Context, []storekit.Outgoing) error { return nil }

// hiding decorates a publisher in an unexported field.
type hiding struct{ inner message.Publisher }

func (h hiding) Publish(topic string, messages ...*message.Message) error {
	return h.inner.Publish(topic, messages...)
}
func (h hiding) Close() error { return h.inner.Close() }

// showing decorates a publisher and lets batches bypass it.
type showing struct{ hiding }

func (s showing) Unwrap() message.Publisher { return s.inner }

func TestCheckPublisher(t *testing.T) {
	t.Parallel()

	t.Run("a decorator that hides batches is named", func(t *testing.T) {
		t.Parallel()
		problems := monitor.CheckPublisher(hiding{hiding{batchTaker{}}})
		require.Len(t, problems, 1)
		require.Equal(t, "batching_hidden", problems[0].Kind)
		require.Equal(t, "monitor_test.hiding", problems[0].Subject)
		require.Contains(t, problems[0].Text, "monitor_test.batchTaker")
		store := open(t, sqlite.Config{EnsureSchema: true})
		report := examine(t, store, monitor.DoctorConfig{Publishers: []message.Publisher{hiding{batchTaker{}}, batchTaker{}}})
		require.Equal(t, []string{"batching_hidden"}, kindsOf(report))
	})

	t.Run("a publisher of batches, a decorator that shows it, and one without batches are fine", func(t *testing.T) {
		t.Parallel()
		for _, publisher := range []message.Publisher{batchTaker{}, showing{hiding{batchTaker{}}}, hiding{hiding{nil}}, nil} {
			require.Empty(t, monitor.CheckPublisher(publisher))
		}
	})
}
