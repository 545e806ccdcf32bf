package monitor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/memdriver"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// damaged is a mystery with a store whose records can be made unreadable.
type damaged struct {
	mystery
	db *memdriver.Database
}

func newDamaged(t *testing.T) damaged {
	t.Helper()
	db := memdriver.New()
	store := engine.New(memdriver.Driver{Database: db}, engine.Config{Name: "memory"})
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	b := damaged{mystery{t, store}, db}
	b.register("billing")
	return b
}

// kill appends records that cannot be read, and has a claim make them dead.
func (b damaged) kill(column memdriver.Column, records ...*outmill.Record) {
	b.Helper()
	b.append(records...)
	for _, r := range records {
		require.NoError(b, b.db.Break(r.ID, column))
	}
	require.Empty(b, b.claim(100, outmill.OrderKey))
}

func TestDoctor_NamesRecordsThatCannotBeRead(t *testing.T) {
	t.Parallel()

	for _, column := range memdriver.Columns() {
		t.Run("a record whose column "+string(column)+" cannot be read has a remedy that works", func(t *testing.T) {
			t.Parallel()
			b := newDamaged(t)
			r := &outmill.Record{MessageID: "one", Key: "k", Metadata: map[string]string{"a": "b"}}
			b.kill(column, r)
			p := one(t, examine(t, b.Store, monitor.DoctorConfig{}), "record_unreadable")
			require.Equal(t, []string{"billing", "orders", r.ID.String()}, []string{p.Group, p.Topic, p.Subject})
			require.Equal(t, monitor.Warning, p.Severity)
			require.Contains(t, p.Text, "column "+string(column))
			require.NotContains(t, p.Text, "secret payload")
			b.follow(p, r)
		})
	}

	t.Run("many are counted, and the first ones are named", func(t *testing.T) {
		t.Parallel()
		b := newDamaged(t)
		var records []*outmill.Record
		for i := range 30 {
			records = append(records, &outmill.Record{MessageID: fmt.Sprint(i)})
		}
		b.kill(memdriver.PayloadColumn, records...)
		var found []monitor.Problem
		for _, p := range examine(t, b.Store, monitor.DoctorConfig{}).Problems {
			if p.Kind == "record_unreadable" {
				found = append(found, p)
			}
		}
		require.Len(t, found, 11)
		require.Contains(t, found[10].Text, "20 more records")
	})

	t.Run("a record that a handler has failed is no such record", func(t *testing.T) {
		t.Parallel()
		b := newDamaged(t)
		b.append(&outmill.Record{})
		r := b.claim(1, outmill.OrderKey)[0]
		require.NoError(t, b.Fail(t.Context(), []outmill.Settlement{{Lease: r.Lease(), Err: "handler: " + storekit.UnreadableError}}))
		require.Equal(t, []string{"dead_records"}, kindsOf(examine(t, b.Store, monitor.DoctorConfig{Unseen: time.Hour})))
	})

	t.Run("a store without the role is not checked", func(t *testing.T) {
		t.Parallel()
		b := newDamaged(t)
		b.kill(memdriver.PayloadColumn, &outmill.Record{})
		report := examine(t, struct{ outmill.Inspector }{b.Store}, monitor.DoctorConfig{})
		require.Contains(t, strings.Join(report.Unchecked, "\n"), "the store lacks the role roles.Repairs")
	})
}

// follow does what the remedy of a record that cannot be read says.
func (b damaged) follow(p monitor.Problem, r *outmill.Record) {
	b.Helper()
	got, err := b.Get(b.Context(), r.ID)
	require.NoError(b, err)
	if got.Unreadable != "" {
		require.Contains(b, p.Remedy, "outmill edit")
		bench, ok := outmill.As[roles.Repairs](b.Store)
		require.True(b, ok)
		edit := roles.Edit{Seen: storekit.FingerprintOf(got), Payload: []byte("new"), Metadata: map[string]string{"a": "c"}}
		_, err := bench.Edit(b.Context(), r.ID, edit)
		require.NoError(b, err)
	}
	require.Contains(b, p.Remedy, "outmill requeue")
	n, err := b.Requeue(b.Context(), r.ID)
	require.NoError(b, err)
	require.Equal(b, 1, n)
	if got, err = b.Get(b.Context(), r.ID); got.Unreadable == "" {
		require.NoError(b, err)
		require.Len(b, b.claim(10, outmill.OrderKey), 1)
		require.NotContains(b, kindsOf(examine(b.T, b.Store, monitor.DoctorConfig{})), "record_unreadable")
		return
	}
	require.Empty(b, b.claim(10, outmill.OrderKey))
	require.Contains(b, p.Remedy, "goes dead again")
	require.Contains(b, p.Remedy, "outmill delete")
	_, err = b.Delete(b.Context(), r.ID)
	require.NoError(b, err)
	require.NotContains(b, kindsOf(examine(b.T, b.Store, monitor.DoctorConfig{})), "record_unreadable")
}

func TestWhy_NamesWhatCannotBeRead(t *testing.T) {
	t.Parallel()

	for _, id := range []string{"the id of the message", "the id of the record"} {
		t.Run("before and after the claim that makes it dead, by "+id, func(t *testing.T) {
			t.Parallel()
			b := newDamaged(t)
			b.append(&outmill.Record{MessageID: "one"})
			r := b.list()[0]
			require.NoError(t, b.db.Break(r.ID, memdriver.TenantColumn))
			asked := "one"
			if id == "the id of the record" {
				asked = r.ID.String()
			}
			kinds, text, _ := b.reasons(asked)
			require.Equal(t, []string{"due", "unreadable"}, kinds, text)
			require.Contains(t, text, "column tenant has a value of another type. The next claim makes it dead.")
			require.NoError(t, b.db.Break(r.ID, memdriver.PayloadColumn))
			require.Empty(t, b.claim(10, outmill.OrderKey))
			kinds, text, _ = b.reasons(asked)
			require.Equal(t, []string{"dead", "unreadable"}, kinds, text)
			require.Contains(t, text, "nobody has handled it")
			require.Contains(t, text, "column payload")
			require.NotContains(t, text, "The next claim")
		})
	}
}

func (b damaged) list() []*outmill.Record {
	b.Helper()
	records, err := b.List(b.Context(), outmill.ListQuery{})
	require.NoError(b, err)
	return records
}

func TestWhy_HasTheLastAttempts(t *testing.T) {
	t.Parallel()
	b := newDamaged(t)
	b.append(&outmill.Record{MessageID: "one"})
	b.abandon("refused", 0)
	b.abandon("refused again", 0)
	id := b.list()[0].ID.String()
	for _, asked := range []string{"one", id} {
		answer, err := monitor.Why(t.Context(), b.Store, asked, monitor.WhyConfig{})
		require.NoError(t, err)
		attempts := answer.Explanations[0].Attempts
		require.Len(t, attempts, 2)
		require.Equal(t, "refused again", attempts[0].Error)
		require.WithinDuration(t, answer.At, attempts[0].At, time.Minute)
		hidden, err := monitor.Why(t.Context(), b.Store, asked, monitor.WhyConfig{HideErrors: true})
		require.NoError(t, err)
		require.Equal(t, []monitor.Attempt{{At: attempts[0].At}, {At: attempts[1].At}}, hidden.Explanations[0].Attempts)
	}
}
