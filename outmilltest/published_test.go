package outmilltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/outmilltest"
	"github.com/outmill/outmill/sqlite"
)

const orders = "orders"

func rec(topic, name string, changes ...func(*outmill.Record)) *outmill.Record {
	r := &outmill.Record{Topic: topic, MessageID: name, Payload: []byte(`{"name":"` + name + `"}`)}
	for _, change := range changes {
		change(r)
	}
	return r
}

func storeWith(t *testing.T, records ...*outmill.Record) *sqlite.Store {
	t.Helper()
	store := outmilltest.NewStore(t)
	require.NoError(t, store.Append(t.Context(), records...))
	return store
}

func register(t *testing.T, store *sqlite.Store, groups ...string) {
	t.Helper()
	for _, group := range groups {
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: group}))
	}
}

func names(records []*outmill.Record) []string {
	var list []string
	for _, r := range records {
		list = append(list, r.MessageID)
	}
	return list
}

func TestPublished(t *testing.T) {
	t.Parallel()

	t.Run("RequirePublished", func(t *testing.T) {
		t.Parallel()

		t.Run("returns the one record that matches", func(t *testing.T) {
			t.Parallel()
			store := storeWith(t, rec(orders, "m1"), rec(orders, "m2"), rec("invoices", "m3"))
			found := outmilltest.RequirePublished(t, store, orders, outmilltest.MessageID("m2"))
			require.Equal(t, "m2", found.MessageID)
			require.JSONEq(t, `{"name":"m2"}`, string(found.Payload))
			require.Equal(t, "m3", outmilltest.RequirePublished(t, store, "invoices").MessageID)
		})

		t.Run("fails where none matches and shows what was published instead", func(t *testing.T) {
			t.Parallel()
			store := storeWith(t,
				rec(orders, "m1", func(r *outmill.Record) { r.Key, r.Metadata = "k1", map[string]string{"region": "north"} }),
				rec(orders, "m2", func(r *outmill.Record) { r.Delay = time.Hour }))
			got := failureOf(t, func(t testing.TB) {
				outmilltest.RequirePublished(t, store, orders, outmilltest.Key("k9"))
			})
			require.Equal(t, `outmilltest: want exactly one such message in topic "orders", got 0; published were:
	1. message "m1", pending, outmill_key="k1", region="north", payload {"name":"m1"}
	   does not match: key is "k1", want "k9"
	2. message "m2", pending, due 1h0m0s after it was published, payload {"name":"m2"}
	   does not match: key is "", want "k9"`, got)
		})

		t.Run("fails where several match", func(t *testing.T) {
			t.Parallel()
			store := storeWith(t, rec(orders, "m1"), rec(orders, "m2"))
			got := failureOf(t, func(t testing.TB) { outmilltest.RequirePublished(t, store, orders) })
			require.Contains(t, got, "want exactly one such message in topic \"orders\", got 2")
			require.Contains(t, got, `message "m1"`)
			require.Contains(t, got, `message "m2"`)
			require.NotContains(t, got, "does not match")
		})

		t.Run("names the topics that have messages where this one has none", func(t *testing.T) {
			t.Parallel()
			store := storeWith(t, rec("invoices", "m1"), rec("Orders", "m2"))
			got := failureOf(t, func(t testing.TB) { outmilltest.RequirePublished(t, store, orders) })
			require.Contains(t, got, `got 0; there are messages in "Orders", "invoices"`)
		})

		t.Run("reports an empty store", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			got := failureOf(t, func(t testing.TB) { outmilltest.RequirePublished(t, store, orders) })
			require.Contains(t, got, "got 0; the store holds no message at all")
		})

		t.Run("shows the first 20 of many messages", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			for i := range 23 {
				require.NoError(t, store.Append(t.Context(), rec(orders, fmt.Sprintf("m%d", i))))
			}
			got := failureOf(t, func(t testing.TB) { outmilltest.RequirePublished(t, store, orders, outmilltest.Key("k")) })
			require.Contains(t, got, `20. message "m19"`)
			require.NotContains(t, got, `message "m20"`)
			require.Contains(t, got, "… and 3 more")
		})

		t.Run("counts a message of several groups once", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			register(t, store, "a", "b", "c")
			require.NoError(t, store.Append(t.Context(), rec(orders, "m1")))
			outmilltest.RequirePublished(t, store, orders)
		})

		t.Run("counts a message that was published twice twice, whatever the groups", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			register(t, store, "a", "b")
			require.NoError(t, store.Append(t.Context(), rec(orders, "m1")))
			require.NoError(t, store.Append(t.Context(), rec(orders, "m1")))
			got := failureOf(t, func(t testing.TB) { outmilltest.RequirePublished(t, store, orders) })
			require.Contains(t, got, "got 2")
			require.Len(t, outmilltest.RequireManyPublished(t, store, orders, outmilltest.Any(), outmilltest.Any()), 2)
		})

		t.Run("finds the message among those of a topic that fill several pages", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			var many []*outmill.Record
			for i := range 2500 {
				many = append(many, rec(orders, fmt.Sprintf("m%d", i)))
			}
			require.NoError(t, store.Append(t.Context(), many...))
			outmilltest.RequirePublished(t, store, orders, outmilltest.MessageID("m2499"))
			outmilltest.RequirePublished(t, store, orders, outmilltest.MessageID("m0"))
		})

		t.Run("still finds handled and acked messages", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			register(t, store, "a")
			require.NoError(t, store.Append(t.Context(), rec(orders, "m1")))
			claimed, err := store.Claim(t.Context(), outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Group: "a", Limit: 1, Lease: time.Minute})
			require.NoError(t, err)
			require.NoError(t, store.Ack(t.Context(), "", []outmill.Lease{claimed[0].Lease()}))
			require.Equal(t, outmill.StatusProcessed, outmilltest.RequirePublished(t, store, orders).Status)
		})

		t.Run("does not see uncommitted messages", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			rollback := errors.New("rollback")
			err := store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
				require.NoError(t, store.Append(ctx, rec(orders, "m1")))
				outmilltest.RequireNotPublished(t, store, orders)
				return rollback
			})
			require.ErrorIs(t, err, rollback)
			outmilltest.RequireNotPublished(t, store, orders)
		})
	})

	t.Run("RequireManyPublished", func(t *testing.T) {
		t.Parallel()

		t.Run("returns the records in the order in which they were published", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			register(t, store, "a", "b")
			require.NoError(t, store.Append(t.Context(), rec(orders, "m1"), rec(orders, "m2")))
			require.NoError(t, store.Append(t.Context(), rec(orders, "m3")))
			found := outmilltest.RequireManyPublished(t, store, orders,
				outmilltest.All(outmilltest.MessageID("m1"), outmilltest.Key("")),
				outmilltest.Any(),
				outmilltest.PayloadJSON(`{"name":"m3"}`))
			require.Equal(t, []string{"m1", "m2", "m3"}, names(found))
		})

		t.Run("fails where there are fewer or more, and shows what there is", func(t *testing.T) {
			t.Parallel()
			store := storeWith(t, rec(orders, "m1"), rec(orders, "m2"))
			for _, n := range []int{0, 1, 3} {
				got := failureOf(t, func(t testing.TB) {
					outmilltest.RequireManyPublished(t, store, orders, slices.Repeat([]outmilltest.Matcher{outmilltest.Any()}, n)...)
				})
				require.Contains(t, got, fmt.Sprintf("want %d messages in topic \"orders\", got 2", n))
				require.Contains(t, got, `2. message "m2"`)
			}
		})

		t.Run("fails if the order differs, and names the wrong message", func(t *testing.T) {
			t.Parallel()
			store := storeWith(t, rec(orders, "m1"), rec(orders, "m2"))
			got := failureOf(t, func(t testing.TB) {
				outmilltest.RequireManyPublished(t, store, orders, outmilltest.Any(), outmilltest.MessageID("m1"))
			})
			require.Contains(t, got, `message 2 of 2 in topic "orders": message id is "m2", want "m1"`)
			require.Contains(t, got, `1. message "m1"`)
		})
	})

	t.Run("RequireNotPublished", func(t *testing.T) {
		t.Parallel()

		t.Run("passes where nothing matches", func(t *testing.T) {
			t.Parallel()
			store := storeWith(t, rec(orders, "m1"))
			outmilltest.RequireNotPublished(t, store, "invoices")
			outmilltest.RequireNotPublished(t, store, orders, outmilltest.MessageID("m2"))
			outmilltest.RequireNotPublished(t, store, orders, outmilltest.MessageID("m1"), outmilltest.Key("k"))
		})

		t.Run("fails where something matches, and shows it", func(t *testing.T) {
			t.Parallel()
			store := storeWith(t, rec(orders, "m1"))
			for _, want := range [][]outmilltest.Matcher{nil, {outmilltest.MessageID("m1")}} {
				got := failureOf(t, func(t testing.TB) { outmilltest.RequireNotPublished(t, store, orders, want...) })
				require.Contains(t, got, `want no such message in topic "orders", got 1; published were:`)
				require.Contains(t, got, `message "m1"`)
			}
		})
	})

	t.Run("Every helper", func(t *testing.T) {
		t.Parallel()
		helpers := map[string]func(t testing.TB, store outmill.Inspector, topic string){
			"RequirePublished": func(t testing.TB, store outmill.Inspector, topic string) {
				outmilltest.RequirePublished(t, store, topic)
			},
			"RequireManyPublished": func(t testing.TB, store outmill.Inspector, topic string) {
				outmilltest.RequireManyPublished(t, store, topic)
			},
			"RequireNotPublished": func(t testing.TB, store outmill.Inspector, topic string) {
				outmilltest.RequireNotPublished(t, store, topic)
			},
		}
		for name, helper := range helpers {
			t.Run(name+" fails where the store cannot be read", func(t *testing.T) {
				t.Parallel()
				bare, err := sqlite.Open(t.Context(), t.TempDir()+"/bare.db", sqlite.Config{}, nil)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, bare.Close()) })
				require.Contains(t, failureOf(t, func(t testing.TB) { helper(t, bare, orders) }), outmill.ErrSchemaMissing.Error())
			})

			t.Run(name+" fails where the store is nil", func(t *testing.T) {
				t.Parallel()
				require.Contains(t, failureOf(t, func(t testing.TB) { helper(t, nil, orders) }), "the store is nil")
				require.Contains(t, failureOf(t, func(t testing.TB) { helper(t, (*sqlite.Store)(nil), orders) }), "the store is nil")
			})

			t.Run(name+" fails where no topic is named", func(t *testing.T) {
				t.Parallel()
				store := outmilltest.NewStore(t)
				require.Contains(t, failureOf(t, func(t testing.TB) { helper(t, store, "") }), "the topic is empty")
			})
		}

		t.Run("fails once with a testing.TB whose Fatalf returns", func(t *testing.T) {
			t.Parallel()
			store := storeWith(t, rec("invoices", "m1"))
			r := &recorder{TB: t, returning: true}
			require.Nil(t, outmilltest.RequirePublished(r, store, orders))
			require.Nil(t, outmilltest.RequireManyPublished(r, store, orders, outmilltest.Any()))
			outmilltest.RequireNotPublished(r, store, "invoices")
			require.Nil(t, outmilltest.RequireManyPublished(r, store, "invoices", outmilltest.Key("k")))
			require.Nil(t, outmilltest.RequirePublished(r, nil, orders))
			outmilltest.RequireNotPublished(r, nil, orders)
			require.Len(t, r.failures, 6)
		})

		t.Run("can be used when the test is over, in a cleanup", func(t *testing.T) {
			t.Parallel()
			store := storeWith(t, rec(orders, "m1"))
			t.Cleanup(func() { outmilltest.RequirePublished(t, store, orders) })
		})
	})

	t.Run("NewStore gives each test its own store", func(t *testing.T) {
		t.Parallel()
		first, second := outmilltest.NewStore(t), outmilltest.NewStore(t)
		require.NoError(t, first.Append(t.Context(), rec(orders, "m1")))
		outmilltest.RequirePublished(t, first, orders)
		outmilltest.RequireNotPublished(t, second, orders)
	})

	t.Run("NewStore closes its store when the test ends", func(t *testing.T) {
		t.Parallel()
		var store *sqlite.Store
		t.Run("a test", func(t *testing.T) { store = outmilltest.NewStore(t) })
		_, err := store.List(t.Context(), outmill.ListQuery{})
		require.ErrorIs(t, err, outmill.ErrClosed)
	})
}
