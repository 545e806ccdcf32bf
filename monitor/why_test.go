package monitor_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
)

// mystery is a store whose group "billing" reads the topic "orders".
type mystery struct {
	*testing.T
	outmill.Store
}

// onEngines runs the test on SQLite, PostgreSQL, and MongoDB.
func onEngines(t *testing.T, config func() (retain time.Duration), test func(m mystery)) {
	t.Helper()
	retain := config()
	for name, open := range map[string]func(t *testing.T) (outmill.Store, error){
		"sqlite": func(t *testing.T) (outmill.Store, error) {
			t.Helper()
			return open(t, sqlite.Config{EnsureSchema: true, Retain: retain}), nil
		},
		"postgres": onPostgres(retain),
		"mongo": func(t *testing.T) (outmill.Store, error) {
			t.Helper()
			db := mongotest.Database(t)
			return mongo.New(db.Client(), mongo.Config{Database: db.Name(), EnsureSchema: true, Retain: retain}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, err := open(t)
			require.NoError(t, err)
			t.Cleanup(func() { _ = store.Close() })
			m := mystery{t, store}
			m.register("billing")
			test(m)
		})
	}
}

func onPostgres(retain time.Duration) func(t *testing.T) (outmill.Store, error) {
	return func(t *testing.T) (outmill.Store, error) {
		t.Helper()
		return postgres.Open(t.Context(), postgrestest.Database(t), postgres.Config{EnsureSchema: true, Retain: retain}, nil)
	}
}

func deleted() time.Duration { return 0 }

func (m mystery) register(group string) {
	m.Helper()
	require.NoError(m, m.RegisterGroup(m.Context(), outmill.Registration{Group: group, Topics: outmill.Topics{Include: []string{"orders"}}}))
}

func (m mystery) append(records ...*outmill.Record) {
	m.Helper()
	for _, r := range records {
		r.Topic, r.Payload = "orders", []byte("secret payload")
	}
	require.NoError(m, m.Append(m.Context(), records...))
}

func (m mystery) claim(limit int, order outmill.Order) []*outmill.Record {
	m.Helper()
	return m.claimAs(outmill.KeyBlock, limit, order)
}

func (m mystery) claimAs(policy outmill.KeyPolicy, limit int, order outmill.Order) []*outmill.Record {
	m.Helper()
	found, err := m.Claim(m.Context(), outmill.ClaimRequest{
		Owner: outmill.NewOwnerToken(), Group: "billing", Topics: outmill.Topics{Include: []string{"orders"}},
		Limit: limit, Lease: time.Hour, Order: order, KeyPolicy: policy,
	})
	require.NoError(m, err)
	return found
}

// reasons asks why, and returns the kinds of the only record's reasons with the whole text.
func (m mystery) reasons(id string) (kinds []string, text string, all []monitor.Reason) {
	m.Helper()
	answer, err := monitor.Why(m.Context(), m.Store, id, monitor.WhyConfig{})
	require.NoError(m, err)
	require.Len(m, answer.Explanations, 1, answer.Text)
	for _, r := range answer.Explanations[0].Reasons {
		kinds, text = append(kinds, r.Kind), text+r.Text+"\n"
	}
	require.NotContains(m, text, "secret payload")
	return kinds, text, answer.Explanations[0].Reasons
}

// otherGroups shows groups as they are some time later.
type otherGroups struct {
	outmill.Store
	change func(g *outmill.GroupInfo)
}

func (s otherGroups) Unwrap() outmill.Store { return s.Store }

func (s otherGroups) Groups(ctx context.Context) ([]outmill.GroupInfo, error) {
	groups, err := s.Store.Groups(ctx)
	for i := range groups {
		s.change(&groups[i])
	}
	return groups, err
}

func make200() []*outmill.Record {
	records := make([]*outmill.Record, 200)
	for i := range records {
		records[i] = &outmill.Record{}
	}
	return records
}

func TestWhy(t *testing.T) {
	t.Parallel()

	t.Run("a record that no worker has claimed is due, behind those before it", func(t *testing.T) {
		t.Parallel()
		onEngines(t, deleted, func(m mystery) {
			m.append(&outmill.Record{MessageID: "first"}, &outmill.Record{MessageID: "second"}, &outmill.Record{MessageID: "third"})
			kinds, text, all := m.reasons("third")
			require.Equal(m, []string{"due"}, kinds, text)
			require.Equal(m, 2, all[0].Before, text)
			require.False(m, all[0].AtLeast)
			require.Contains(m, text, "has not been claimed yet")
		})
	})

	t.Run("a leased record names its worker and the end of the lease", func(t *testing.T) {
		t.Parallel()
		onEngines(t, deleted, func(m mystery) {
			m.append(&outmill.Record{MessageID: "one"})
			found := m.claim(1, outmill.OrderNone)
			kinds, text, all := m.reasons(found[0].ID.String())
			require.Equal(m, []string{"leased"}, kinds, text)
			require.Contains(m, text, found[0].Owner.String())
			require.WithinDuration(m, time.Now().Add(time.Hour), all[0].At, 10*time.Minute)
		})
	})

	t.Run("a later record of a key waits for the retry of an earlier one, and names its error", func(t *testing.T) {
		t.Parallel()
		onEngines(t, deleted, func(m mystery) {
			m.append(&outmill.Record{MessageID: "first", Key: "7"}, &outmill.Record{MessageID: "second", Key: "7"})
			first := m.claim(1, outmill.OrderKey)[0]
			require.NoError(m, m.Abandon(m.Context(), []outmill.Settlement{{Lease: first.Lease(), Delay: time.Hour, Err: "the bank\nis down"}}))
			require.Empty(m, m.claim(10, outmill.OrderKey))
			kinds, text, all := m.reasons("second")
			require.Contains(m, kinds, "key_waits", text)
			require.Contains(m, text, `"the bank\nis down"`, "the error is on one line")
			for _, r := range all {
				if r.Kind == "key_waits" {
					require.Equal(m, first.ID, r.Record)
				}
			}
			kinds, text, _ = m.reasons("first")
			require.Equal(m, []string{"retry"}, kinds, text)
		})
	})

	t.Run("a later record of a key names the worker that has an earlier one", func(t *testing.T) {
		t.Parallel()
		onEngines(t, deleted, func(m mystery) {
			m.append(&outmill.Record{MessageID: "first", Key: "7"}, &outmill.Record{MessageID: "second", Key: "7"})
			first := m.claim(1, outmill.OrderKey)[0]
			kinds, text, _ := m.reasons("second")
			require.Contains(m, kinds, "key_leased", text)
			require.Contains(m, text, first.ID.String())
			require.Contains(m, text, first.Owner.String())
		})
	})

	t.Run("a parked record names the record that failed", func(t *testing.T) {
		t.Parallel()
		onEngines(t, deleted, func(m mystery) {
			m.append(&outmill.Record{MessageID: "first", Key: "7"}, &outmill.Record{MessageID: "second", Key: "7"})
			first := m.claim(1, outmill.OrderKey)[0]
			require.NoError(m, m.Fail(m.Context(), []outmill.Settlement{{Lease: first.Lease(), Err: "no such account", Park: true}}))
			// A store may park in steps, which claims take.
			require.Empty(m, m.claimAs(outmill.KeyPark, 10, outmill.OrderKey))
			kinds, text, all := m.reasons("second")
			require.Equal(m, []string{"parked"}, kinds, text)
			require.Equal(m, first.ID, all[0].Record)
			require.Contains(m, text, "no such account")
			kinds, text, _ = m.reasons("first")
			require.Equal(m, []string{"dead"}, kinds, text)
		})
	})

	t.Run("delayed, snoozed and expiring records say until when", func(t *testing.T) {
		t.Parallel()
		onEngines(t, deleted, func(m mystery) {
			m.append(&outmill.Record{MessageID: "later", Delay: time.Hour})
			kinds, text, _ := m.reasons("later")
			require.Equal(m, []string{"delayed"}, kinds, text)
			m.append(&outmill.Record{MessageID: "brief", TimeToLive: time.Hour})
			kinds, text, _ = m.reasons("brief")
			require.Equal(m, []string{"due", "expires"}, kinds, text)
			found := m.claim(1, outmill.OrderNone)
			require.NoError(m, m.Snooze(m.Context(), []outmill.Settlement{{Lease: found[0].Lease(), Delay: time.Hour}}))
			kinds, text, _ = m.reasons("brief")
			require.Equal(m, []string{"snoozed", "expires"}, kinds, text)
		})
	})

	t.Run("a message has an explanation for each group, and a processed record says by whom", func(t *testing.T) {
		t.Parallel()
		onEngines(t, func() time.Duration { return time.Hour }, func(m mystery) {
			m.register("audit")
			m.append(&outmill.Record{MessageID: "shared"})
			found := m.claim(1, outmill.OrderNone)
			require.NoError(m, m.Ack(m.Context(), "host:7", []outmill.Lease{found[0].Lease()}))
			answer, err := monitor.Why(m.Context(), m.Store, "shared", monitor.WhyConfig{})
			require.NoError(m, err)
			kinds := map[string]string{}
			for _, e := range answer.Explanations {
				kinds[e.Group] = e.Reasons[0].Kind
				if e.Group == "billing" {
					require.Contains(m, e.Reasons[0].Text, `"host:7"`)
				}
			}
			require.Equal(m, map[string]string{"audit": "due", "billing": "processed"}, kinds)
			require.Contains(m, answer.Text, "2 records")
		})
	})

	t.Run("a record without a group waits for one, and a group without a registration is named", func(t *testing.T) {
		t.Parallel()
		onEngines(t, deleted, func(m mystery) {
			require.NoError(m, m.Append(m.Context(), &outmill.Record{MessageID: "alone", Topic: "unread"}))
			kinds, text, _ := m.reasons("alone")
			require.Equal(m, []string{"no_group"}, kinds, text)
			require.Contains(m, text, `"unread"`)
		})
	})

	t.Run("a record that waits beside a group that holds is taken once the destination of the group has answered", func(t *testing.T) {
		t.Parallel()
		store := open(t, sqlite.Config{EnsureSchema: true})
		m := mystery{t, store}
		require.NoError(t, store.Append(t.Context(), &outmill.Record{MessageID: "early", Topic: "orders"}))
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: "forwarder", Worker: "one", Hold: true,
			Problems: map[string]string{"": "the destination has not answered since noon"}}))
		kinds, text, _ := m.reasons("early")
		require.Equal(t, []string{"holding", "breaker"}, kinds, text)
		require.Contains(t, text, `Group "forwarder" reads its topic and takes it once its destination has answered`)
		require.Contains(t, text, "has not answered since noon")
		m.register("billing")
		kinds, text, _ = m.reasons("early")
		require.NotContains(t, kinds, "holding", text)
	})

	t.Run("a record that was appended before its group registered, and committed after, is adopted later", func(t *testing.T) {
		t.Parallel()
		store, err := postgres.Open(t.Context(), postgrestest.Database(t), postgres.Config{EnsureSchema: true}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = store.Close() })
		m := mystery{t, store}
		tx, err := store.Pool().Begin(t.Context())
		require.NoError(t, err)
		// A record with an id of its own is among the records, and not in the log.
		early := outmill.Record{ID: outmill.NewWorkItemID(), MessageID: "early", Topic: "orders"}
		require.NoError(t, store.Append(store.WithTx(t.Context(), tx), &early))
		m.register("billing")
		require.NoError(t, tx.Commit(t.Context()))

		kinds, text, reasons := m.reasons("early")
		require.Equal(t, []string{"adoption"}, kinds, text)
		require.Contains(t, text, `Group "billing" reads its topic and gets it with its next registration`)
		require.WithinDuration(t, time.Now(), reasons[0].At, time.Minute)
		m.register("billing")
		kinds, text, _ = m.reasons("early")
		require.NotContains(t, kinds, "adoption", text)
		require.Len(t, m.claim(10, outmill.OrderNone), 1)
	})

	t.Run("a message that is not in the store is no error, and the answer does not guess", func(t *testing.T) {
		t.Parallel()
		onEngines(t, deleted, func(m mystery) {
			for _, id := range []string{"never", outmill.NewWorkItemID().String()} {
				answer, err := monitor.Why(m.Context(), m.Store, id, monitor.WhyConfig{})
				require.NoError(m, err)
				require.Empty(m, answer.Explanations)
				require.Contains(m, answer.Text, "cannot tell which")
			}
		})
	})

	t.Run("a held record names its blocker, and a record of a parked key the dead one", func(t *testing.T) {
		t.Parallel()
		m := mystery{t, open(t, sqlite.Config{EnsureSchema: true})}
		m.register("billing")
		m.append(&outmill.Record{MessageID: "first", Key: "7"}, &outmill.Record{MessageID: "second", Key: "7"})
		first := m.claim(1, outmill.OrderKey)[0]
		require.NoError(t, m.Abandon(t.Context(), []outmill.Settlement{{Lease: first.Lease(), Delay: time.Hour, Err: "no"}}))
		require.Empty(t, m.claim(10, outmill.OrderKey))
		kinds, text, _ := m.reasons("second")
		require.Equal(t, []string{"held", "key_waits"}, kinds, text)

		m.append(&outmill.Record{MessageID: "third", Key: "8"}, &outmill.Record{MessageID: "fourth", Key: "8"})
		third := m.claim(1, outmill.OrderKey)[0]
		require.NoError(t, m.Fail(t.Context(), []outmill.Settlement{{Lease: third.Lease(), Err: "no", Park: true}}))
		require.Empty(t, m.claim(10, outmill.OrderKey))
		m.append(&outmill.Record{MessageID: "fifth", Key: "8"})
		kinds, text, all := m.reasons("fifth")
		require.Contains(t, kinds, "key_parked", text)
		require.Contains(t, text, all[len(all)-1].Record.String())
	})

	t.Run("a lease that has ended and a suspect say so", func(t *testing.T) {
		t.Parallel()
		m := mystery{t, open(t, sqlite.Config{EnsureSchema: true})}
		m.register("billing")
		m.append(&outmill.Record{MessageID: "one"})
		for range outmill.SuspectExpiries {
			_, err := m.Claim(t.Context(), outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Group: "billing", Limit: 1, Lease: time.Millisecond})
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				kinds, _, _ := m.reasons("one")
				return kinds[0] == "lease_ended"
			}, time.Minute, time.Millisecond)
			reaped, err := m.ReapExpired(t.Context(), 10)
			require.NoError(t, err)
			require.Equal(t, 1, reaped)
		}
		kinds, text, _ := m.reasons("one")
		require.Equal(t, []string{"due", "suspect"}, kinds, text)
	})

	t.Run("a record that expired says when, before and after the janitor", func(t *testing.T) {
		t.Parallel()
		m := mystery{t, open(t, sqlite.Config{EnsureSchema: true})}
		m.register("billing")
		m.append(&outmill.Record{MessageID: "one", TimeToLive: time.Millisecond})
		expired := func() bool {
			kinds, _, _ := m.reasons("one")
			return len(kinds) == 1 && kinds[0] == "expired"
		}
		require.Eventually(t, expired, time.Minute, time.Millisecond)
		_, err := m.ExpireDue(t.Context(), 10)
		require.NoError(t, err)
		rec, err := m.List(t.Context(), outmill.ListQuery{MessageID: "one"})
		require.NoError(t, err)
		require.Equal(t, outmill.StatusDead, rec[0].Status)
		require.True(t, expired())
	})

	t.Run("a step and a waiting record say how their join stands", func(t *testing.T) {
		t.Parallel()
		m := mystery{t, open(t, sqlite.Config{EnsureSchema: true})}
		m.register("billing")
		joins, ok := outmill.As[roles.Joins](m.Store)
		require.True(t, ok)
		join := &roles.Join{ExpectedSteps: 3}
		require.NoError(t, joins.StartJoin(t.Context(), join))
		m.append(&outmill.Record{MessageID: "step", Joins: []outmill.JoinID{join.ID}}, &outmill.Record{MessageID: "waiter", WaitsFor: join.ID})
		kinds, text, all := m.reasons("step")
		require.Equal(t, []string{"due", "step_of_join"}, kinds, text)
		require.Equal(t, join.ID, all[1].Join)
		require.Contains(t, text, "of 3 steps 0 are completed and 0 failed")
		kinds, text, _ = m.reasons("waiter")
		require.Contains(t, kinds, "waits_for_join", text)
	})

	t.Run("a group that does not read the record any more is named", func(t *testing.T) {
		t.Parallel()
		m := mystery{t, open(t, sqlite.Config{EnsureSchema: true})}
		m.register("billing")
		m.append(&outmill.Record{MessageID: "one"})
		for kind, change := range map[string]func(g *outmill.GroupInfo){
			"group_ended":  func(g *outmill.GroupInfo) { g.Registrations = nil },
			"not_selected": func(g *outmill.GroupInfo) { g.Registrations[0].Topics.Include = []string{"payments"} },
			"not_seen":     func(g *outmill.GroupInfo) { g.SeenAt = time.Now().Add(-time.Hour) },
		} {
			changed := mystery{t, otherGroups{m.Store, change}}
			kinds, text, _ := changed.reasons("one")
			require.Equal(t, []string{"due", kind}, kinds, text)
		}
	})

	t.Run("a due record names what forwarders have reported about its topic and about the broker", func(t *testing.T) {
		t.Parallel()
		onEngines(t, func() time.Duration { return 0 }, func(m mystery) {
			report := func(worker string, problems map[string]string) {
				require.NoError(m, m.RegisterGroup(m.Context(), outmill.Registration{Group: "billing", Worker: worker, Problems: problems}))
			}
			report("old", map[string]string{"": "EOF", "payments": "unknown"})
			report("new", map[string]string{"": "no route to \"kafka\""})
			report("well", nil)
			m.append(&outmill.Record{MessageID: "one"})
			require.NoError(m, m.Append(m.Context(), &outmill.Record{Topic: "payments", MessageID: "held"}))
			kinds, text, _ := m.reasons("one")
			require.Equal(m, []string{"due", "breaker"}, kinds, text)
			require.Regexp(m, `Worker "new" reported at \S+Z \(.* ago\): "no route to \\"kafka\\""\. `+
				`Of 3 workers of the group, 2 report such a problem\.`, text)
			kinds, text, _ = m.reasons("held")
			require.Equal(m, []string{"due", "breaker", "on_hold"}, kinds, text)
			require.Regexp(m, `Worker "old" reported at .* "unknown"\. Of 3 workers of the group, 1 report such a problem\.`, text)
			for _, worker := range []string{"old", "new"} {
				report(worker, nil)
			}
			kinds, text, _ = m.reasons("held")
			require.Equal(m, []string{"due"}, kinds, text)
		})
	})

	t.Run("a message that was skipped is explained by the record that took its dedup key", func(t *testing.T) {
		t.Parallel()
		onEngines(t, func() time.Duration { return 0 }, func(m mystery) {
			m.register("billing")
			first := &outmill.Record{MessageID: "first", DedupKey: "paid"}
			m.append(first, &outmill.Record{MessageID: "second", DedupKey: "paid"})
			answer, err := monitor.WhyDuplicate(m.Context(), m.Store, "orders", "paid", monitor.WhyConfig{})
			require.NoError(m, err)
			require.Equal(m, "paid", answer.ID)
			require.Regexp(m, `^Record `+first.ID.String()+` took the dedup key\. Until \S+Z \(in \S+\) `+
				`the store skips messages of topic "orders"`, answer.Text)
			require.Len(m, answer.Explanations, 1)
			require.Equal(m, "first", answer.Explanations[0].MessageID)

			_, err = m.Delete(m.Context(), first.ID)
			require.NoError(m, err)
			answer, err = monitor.WhyDuplicate(m.Context(), m.Store, "orders", "paid", monitor.WhyConfig{})
			require.NoError(m, err)
			require.Contains(m, answer.Text, "took the dedup key")
			require.Contains(m, answer.Text, "The store has no record or message with this id")
			require.Empty(m, answer.Explanations)

			answer, err = monitor.WhyDuplicate(m.Context(), m.Store, "orders", "free", monitor.WhyConfig{})
			require.NoError(m, err)
			require.Contains(m, answer.Text, "does not remember the dedup key")
			_, err = monitor.WhyDuplicate(m.Context(), m.Store, "", "paid", monitor.WhyConfig{})
			require.ErrorIs(m, err, outmill.ErrInvalidRecord)
			_, err = monitor.WhyDuplicate(m.Context(), nil, "orders", "paid", monitor.WhyConfig{})
			require.ErrorIs(m, err, outmill.ErrInvalidConfig)
			_, err = monitor.WhyDuplicate(m.Context(), struct{ outmill.Inspector }{m.Store}, "orders", "paid", monitor.WhyConfig{})
			require.ErrorContains(m, err, "keeps no dedup keys")
		})
	})

	t.Run("a paused record names the pause, by whom and why", func(t *testing.T) {
		t.Parallel()
		m := mystery{t, open(t, sqlite.Config{EnsureSchema: true})}
		m.register("billing")
		m.append(&outmill.Record{MessageID: "one"}, &outmill.Record{MessageID: "keyed", Key: "7"})
		pauses, ok := outmill.As[roles.Pauses](m.Store)
		require.True(t, ok)
		require.NoError(t, pauses.Pause(t.Context(), roles.PauseScope{Topic: "orders"}, "ann", "the bank is down"))
		for range 2 {
			for _, id := range []string{"one", "keyed"} {
				kinds, text, _ := m.reasons(id)
				require.Equal(t, "paused", kinds[0], text)
				require.Contains(t, text, `by "ann"`)
				require.Contains(t, text, `because "the bank is down"`)
			}
			require.Empty(t, m.claim(10, outmill.OrderKey))
		}
	})

	t.Run("a search that ends early says how far it came", func(t *testing.T) {
		t.Parallel()
		m := mystery{t, open(t, sqlite.Config{EnsureSchema: true})}
		m.register("billing")
		for range 11 {
			batch := make([]*outmill.Record, 1000)
			for i := range batch {
				batch[i] = &outmill.Record{}
			}
			m.append(batch...)
		}
		m.append(&outmill.Record{MessageID: "last"})
		answer, err := monitor.Why(t.Context(), m.Store, "last", monitor.WhyConfig{MaxExamined: 1000})
		require.NoError(t, err)
		require.Empty(t, answer.Explanations)
		require.False(t, answer.Complete)
		require.Contains(t, answer.Text, "The store has more records")
		_, text, all := m.reasons("last")
		require.True(t, all[0].AtLeast, text)
		require.Contains(t, text, "At least")
	})

	t.Run("the error texts of handlers are left out where they are to be hidden", func(t *testing.T) {
		t.Parallel()
		onEngines(t, deleted, func(m mystery) {
			m.append(&outmill.Record{MessageID: "dead"}, &outmill.Record{MessageID: "retried"})
			for i, r := range m.claim(2, outmill.OrderNone) {
				outcome := []outmill.Settlement{{Lease: r.Lease(), Err: "card S3CRET was refused", Delay: time.Hour}}
				if i == 0 {
					require.NoError(m, m.Fail(m.Context(), outcome))
				} else {
					require.NoError(m, m.Abandon(m.Context(), outcome))
				}
			}
			for _, id := range []string{"dead", "retried"} {
				answer, err := monitor.Why(m.Context(), m.Store, id, monitor.WhyConfig{HideErrors: true})
				require.NoError(m, err)
				text := fmt.Sprint(answer.Explanations)
				require.NotContains(m, text, "S3CRET")
				require.Contains(m, text, "Its error text is hidden here.")
			}
		})
	})

	t.Run("a record is compared with no more others than it may be", func(t *testing.T) {
		t.Parallel()
		onEngines(t, deleted, func(m mystery) {
			for range 3 {
				m.append(make200()...)
			}
			m.append(&outmill.Record{MessageID: "last"})
			answer, err := monitor.Why(m.Context(), m.Store, "last", monitor.WhyConfig{MaxNeighbours: 300})
			require.NoError(m, err)
			due := answer.Explanations[0].Reasons[0]
			require.Equal(m, "due", due.Kind)
			require.True(m, due.AtLeast)
			require.Less(m, due.Before, 600)
		})
	})

	t.Run("a question that makes no sense is refused", func(t *testing.T) {
		t.Parallel()
		store := open(t, sqlite.Config{EnsureSchema: true})
		for _, ask := range []func() (monitor.Answer, error){
			func() (monitor.Answer, error) { return monitor.Why(t.Context(), store, " ", monitor.WhyConfig{}) },
			func() (monitor.Answer, error) { return monitor.Why(t.Context(), nil, "one", monitor.WhyConfig{}) },
			func() (monitor.Answer, error) {
				return monitor.Why(t.Context(), store, "one", monitor.WhyConfig{MaxExamined: -1})
			},
		} {
			_, err := ask()
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := monitor.Why(ctx, store, "one", monitor.WhyConfig{})
		require.ErrorIs(t, err, context.Canceled)
	})

	t.Run("a long error is cut", func(t *testing.T) {
		t.Parallel()
		m := mystery{t, open(t, sqlite.Config{EnsureSchema: true})}
		m.register("billing")
		m.append(&outmill.Record{MessageID: "one"})
		found := m.claim(1, outmill.OrderNone)
		require.NoError(t, m.Fail(t.Context(), []outmill.Settlement{{Lease: found[0].Lease(), Err: strings.Repeat("é", 2000)}}))
		_, text, _ := m.reasons("one")
		require.Equal(t, 500, strings.Count(text, "é"))
	})
}
