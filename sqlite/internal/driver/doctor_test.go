package driver_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest"
)

// damaged is a store whose group "billing" reads the topic "orders", and whose records can be made unreadable.
type damaged struct {
	harness
	store
	*testing.T
}

func newDamaged(t *testing.T) damaged {
	t.Helper()
	h := newHarness(t, storetest.Options{}, 0)
	b := damaged{h, h.store, t}
	require.NoError(t, b.RegisterGroup(t.Context(), outmill.Registration{Group: "billing", Topics: orders}))
	return b
}

var orders = outmill.Topics{Include: []string{"orders"}}

func (b damaged) append(records ...*outmill.Record) {
	b.Helper()
	for _, r := range records {
		r.Topic, r.Payload = "orders", []byte("secret payload")
	}
	require.NoError(b, b.Append(b.Context(), records...))
}

func (b damaged) breakIt(r *outmill.Record, column string) { b.Break(b.store, r.ID, column) }

func (b damaged) claim(worker string) []*outmill.Record {
	b.Helper()
	found, err := b.Claim(b.Context(), outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Group: "billing", Topics: orders, Limit: 100,
		Lease: time.Hour, Order: outmill.OrderKey, Worker: worker})
	require.NoError(b, err)
	return found
}

func (b damaged) abandon(reason string) {
	b.Helper()
	found := b.claim("host <7>")
	require.Len(b, found, 1)
	require.NoError(b, b.Abandon(b.Context(), []outmill.Settlement{{Lease: found[0].Lease(), Err: reason}}))
}

// kill appends records that cannot be read, and has a claim make them dead.
func (b damaged) kill(column string, records ...*outmill.Record) {
	b.Helper()
	b.append(records...)
	for _, r := range records {
		b.breakIt(r, column)
	}
	require.Empty(b, b.claim(""))
}

// problems are those of doctor of one kind.
func (b damaged) problems(kind string) (found []monitor.Problem) {
	b.Helper()
	report, err := monitor.Doctor(b.Context(), b.store, monitor.DoctorConfig{})
	require.NoError(b, err)
	for _, p := range report.Problems {
		if p.Kind == kind {
			found = append(found, p)
		}
	}
	return found
}

func TestDoctor_NamesRecordsThatCannotBeRead(t *testing.T) {
	t.Parallel()

	for _, column := range (harness{}).Columns() {
		t.Run("a record whose column "+column+" cannot be read has a remedy that works", func(t *testing.T) {
			t.Parallel()
			b := newDamaged(t)
			r := &outmill.Record{MessageID: "one", Key: "k", Metadata: map[string]string{"a": "b"}}
			b.kill(column, r)
			found := b.problems("record_unreadable")
			require.Len(t, found, 1)
			p := found[0]
			require.Equal(t, []string{"billing", "orders", r.ID.String()}, []string{p.Group, p.Topic, p.Subject})
			require.Equal(t, monitor.Warning, p.Severity)
			require.Contains(t, p.Text, "column "+column)
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
		b.kill("payload", records...)
		found := b.problems("record_unreadable")
		require.Len(t, found, 11)
		require.Contains(t, found[10].Text, "20 more records")
	})

	t.Run("a record that a handler has failed is no such record", func(t *testing.T) {
		t.Parallel()
		b := newDamaged(t)
		b.append(&outmill.Record{})
		r := b.claim("")[0]
		require.NoError(t, b.store.Fail(t.Context(), []outmill.Settlement{{Lease: r.Lease(), Err: "handler: " + storekit.UnreadableError}}))
		require.Empty(t, b.problems("record_unreadable"))
		require.Len(t, b.problems("dead_records"), 1)
	})

	t.Run("a store without the role is not checked", func(t *testing.T) {
		t.Parallel()
		b := newDamaged(t)
		b.kill("payload", &outmill.Record{})
		report, err := monitor.Doctor(t.Context(), struct{ outmill.Inspector }{b.store}, monitor.DoctorConfig{})
		require.NoError(t, err)
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
		bench, ok := outmill.As[roles.Repairs](outmill.Store(b.store))
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
		require.Len(b, b.claim(""), 1)
		require.Empty(b, b.problems("record_unreadable"))
		return
	}
	require.Empty(b, b.claim(""))
	require.Contains(b, p.Remedy, "goes dead again")
	require.Contains(b, p.Remedy, "outmill delete")
	_, err = b.Delete(b.Context(), r.ID)
	require.NoError(b, err)
	require.Empty(b, b.problems("record_unreadable"))
}

func TestWhy_NamesWhatCannotBeRead(t *testing.T) {
	t.Parallel()

	for _, id := range []string{"the id of the message", "the id of the record"} {
		t.Run("before and after the claim that makes it dead, by "+id, func(t *testing.T) {
			t.Parallel()
			b := newDamaged(t)
			b.append(&outmill.Record{MessageID: "one"})
			r := b.list()[0]
			b.breakIt(r, "tenant_id")
			asked := "one"
			if id == "the id of the record" {
				asked = r.ID.String()
			}
			kinds, text := b.reasons(asked)
			require.Equal(t, []string{"due", "unreadable"}, kinds, text)
			require.Contains(t, text, "column tenant_id: want text, have a blob. The next claim makes it dead.")
			b.breakIt(r, "payload")
			require.Empty(t, b.claim(""))
			kinds, text = b.reasons(asked)
			require.Equal(t, []string{"dead", "unreadable"}, kinds, text)
			require.Contains(t, text, "nobody has handled it")
			require.Contains(t, text, "column payload")
			require.NotContains(t, text, "The next claim")
		})
	}
}

// reasons asks why, and returns the kinds of the only record's reasons with the whole text.
func (b damaged) reasons(id string) (kinds []string, text string) {
	b.Helper()
	answer, err := monitor.Why(b.Context(), b.store, id, monitor.WhyConfig{})
	require.NoError(b, err)
	require.Len(b, answer.Explanations, 1, answer.Text)
	for _, r := range answer.Explanations[0].Reasons {
		kinds, text = append(kinds, r.Kind), text+r.Text+"\n"
	}
	return kinds, text
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
	b.abandon("refused")
	b.abandon("refused again")
	id := b.list()[0].ID.String()
	for _, asked := range []string{"one", id} {
		answer, err := monitor.Why(t.Context(), b.store, asked, monitor.WhyConfig{})
		require.NoError(t, err)
		attempts := answer.Explanations[0].Attempts
		require.Len(t, attempts, 2)
		require.Equal(t, "refused again", attempts[0].Error)
		require.WithinDuration(t, answer.At, attempts[0].At, time.Minute)
		hidden, err := monitor.Why(t.Context(), b.store, asked, monitor.WhyConfig{HideErrors: true})
		require.NoError(t, err)
		want := []monitor.Attempt{{At: attempts[0].At, Worker: "host <7>"}, {At: attempts[1].At, Worker: "host <7>"}}
		require.Equal(t, want, hidden.Explanations[0].Attempts)
	}
}
