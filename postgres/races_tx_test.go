package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/storetest"
)

var oddTexts = []string{
	`NULL`, `null`, `{}`, `{a,b}`, `"`, `""`, `\`, `\\`, `\"`, `'`, `''`, `a,b`, `x'y"z\`, "tab\tin it", "line\nin it", "cr\r\nin it",
	"\u00e4\u00f6\u00fc", "\U0001F600", "\u2028", "\u200b", `$1`, `?`, `:a`, `%s`, `\x00`, `+1:00`, `g`, `<&>`, "\x01\x1f\x7f",
}

// oddSettings are settings that a user's session may have.
var oddSettings = map[string]string{
	"datestyle": "SQL, DMY", "timezone": "Asia/Kathmandu", "intervalstyle": "sql_standard", "standard_conforming_strings": "off",
	"search_path": "", "bytea_output": "escape", "enable_indexscan": "off", "enable_indexonlyscan": "off",
	"default_transaction_isolation": "serializable",
	"extra_float_digits":            "0", "lc_messages": "C", "escape_string_warning": "on", "array_nulls": "off",
	"plan_cache_mode":                "force_generic_plan",
	"default_transaction_deferrable": "on", "xmlbinary": "hex", "backslash_quote": "off", "quote_all_identifiers": "on",
}

// oddRecords have far times only in the lane in which these do not move them to another one.
func oddRecords(lane postgres.Lane) []*outmill.Record {
	due, ends := time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)
	var records []*outmill.Record
	for i, text := range oddTexts {
		records = append(records, &outmill.Record{
			Topic: "t" + text + "t", Key: "k" + text + "k", MessageID: text + fmt.Sprint(i), Payload: []byte("\x00\xff" + text),
			Metadata: map[string]string{text: text, "empty": ""}, CorrelationID: text, CausationID: text, TenantID: text,
			TraceParent: text, TraceState: text, DedupKey: "d" + text + "d", DueAt: due, ExpiresAt: ends,
		})
	}
	if lane == postgres.LaneLog {
		for _, one := range records {
			one.DueAt, one.ExpiresAt = time.Time{}, time.Time{}
		}
		return records
	}
	return append(records, &outmill.Record{Topic: "far", MessageID: "far", Delay: 1<<63 - 1, TimeToLive: 1<<63 - 1})
}

func TestStore_RacesTx(t *testing.T) {
	t.Parallel()

	t.Run("odd text and far times survive odd sessions", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			config := r.db.Config()
			for name, value := range oddSettings {
				config.ConnConfig.RuntimeParams[name] = value
			}
			db, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
			require.NoError(t, err)
			t.Cleanup(db.Close)
			odd := newStore(t, db, r.store.config)
			handle := stdlib.OpenDBFromPool(db)
			t.Cleanup(func() { require.NoError(t, handle.Close()) })

			for name, write := range map[string]func(records []*outmill.Record) error{
				"own": func(records []*outmill.Record) error { return odd.Append(t.Context(), records...) },
				"pgx": func(records []*outmill.Record) error {
					return pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
						return odd.Append(odd.WithTx(t.Context(), tx), records...)
					})
				},
				"sql": func(records []*outmill.Record) error {
					tx, err := handle.BeginTx(t.Context(), nil)
					if err != nil {
						return err
					}
					return errors.Join(odd.Append(odd.WithTx(t.Context(), tx), records...), tx.Commit())
				},
			} {
				records := oddRecords(r.store.config.Lane)
				for _, one := range records {
					one.Topic += name
				}
				require.NoError(t, write(records), name)
				for _, want := range records {
					require.False(t, want.Duplicate, name)
					found, err := odd.Get(t.Context(), want.ID)
					require.NoError(t, err, name)
					require.Equal(t, want.Topic, found.Topic)
					require.Equal(t, want.Key, found.Key)
					require.Equal(t, want.MessageID, found.MessageID)
					require.Equal(t, append([]byte{}, want.Payload...), append([]byte{}, found.Payload...))
					require.Equal(t, want.Metadata, found.Metadata)
					require.Equal(t, []string{want.CorrelationID, want.CausationID, want.TenantID, want.TraceParent, want.TraceState, want.DedupKey},
						[]string{found.CorrelationID, found.CausationID, found.TenantID, found.TraceParent, found.TraceState, found.DedupKey})
					if !want.DueAt.IsZero() {
						require.Equal(t, want.DueAt, found.DueAt)
						require.Equal(t, want.ExpiresAt, found.ExpiresAt)
					}
					if want.Delay > 0 {
						require.Greater(t, found.DueAt.Year(), 2300)
						require.Greater(t, found.ExpiresAt.Year(), 2300)
					}
				}
				again := oddRecords(r.store.config.Lane)
				for _, one := range again {
					one.Topic += name
				}
				require.NoError(t, write(again), name)
				for _, one := range again {
					require.Equal(t, one.DedupKey != "", one.Duplicate)
				}
			}
			require.NoError(t, odd.Append(t.Context(), made("orders", "claimed", 3)...))
			for _, order := range []outmill.Order{outmill.OrderKey, outmill.OrderTopic, outmill.OrderNone} {
				found := claimed(t, odd, claimOf(outmill.NewOwnerToken(), 1, order, "orders"))
				require.Len(t, found, 1)
				require.NoError(t, odd.Ack(t.Context(), "", leasesOf(found)))
			}
		})
	})

	t.Run("a transaction that began before a registration loses nothing", func(t *testing.T) {
		t.Parallel()
		for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
			t.Run(string(level), func(t *testing.T) {
				t.Parallel()
				eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
					_, err := r.store.DropGroup(t.Context(), readers)
					require.NoError(t, err)
					tx, err := r.db.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
					require.NoError(t, err)
					r.t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
					r.execIn(tx, `SELECT count(*) FROM {records}`)
					other := reopen(t, r.store)
					require.NoError(t, other.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
					ctx := r.store.WithTx(t.Context(), tx)
					require.NoError(t, r.store.Append(ctx, &outmill.Record{Topic: "orders", Key: "key", MessageID: "first"}))
					require.Empty(t, r.claim(outmill.NewOwnerToken(), 1))
					require.NoError(t, tx.Commit(t.Context()))
					r.append("key", "second")
					require.Equal(t, []string{"first", "second"}, namesOf(r.claim(outmill.NewOwnerToken(), 5)))
				})
			})
		}
	})

	t.Run("a dedup key that an open transaction holds is decided by its end", func(t *testing.T) {
		t.Parallel()
		for name, commit := range map[string]bool{"commit": true, "rollback": false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
					tx := r.begin()
					require.NoError(t, r.store.Append(r.store.WithTx(t.Context(), tx), deduplicated("first")))
					second := deduplicated("second")
					done := async(func() (int, error) { return 0, r.store.Append(t.Context(), second) })
					r.blocked(1)
					if commit {
						require.NoError(t, tx.Commit(t.Context()))
					} else {
						require.NoError(t, tx.Rollback(t.Context()))
					}
					await(t, done)
					require.Equal(t, commit, second.Duplicate)
					require.Equal(t, 1, r.count())
				})
			})
		}
	})

	t.Run("a dedup key of a savepoint that was rolled back is free", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			require.NoError(t, r.store.InTx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
				inner, err := tx.Begin(ctx)
				if err != nil {
					return err
				}
				one, two := deduplicated("inner"), deduplicated("again")
				if err := r.store.Append(r.store.WithTx(ctx, inner), one, two); err != nil {
					return err
				}
				require.False(t, one.Duplicate)
				require.True(t, two.Duplicate)
				if err := inner.Rollback(ctx); err != nil {
					return err
				}
				three, four := deduplicated("outer"), deduplicated("outer again")
				err = errors.Join(r.store.Append(ctx, three), r.store.Append(ctx, four))
				require.False(t, three.Duplicate)
				require.True(t, four.Duplicate)
				return err
			}))
			require.Equal(t, []string{"outer"}, namesOf(r.claim(outmill.NewOwnerToken(), 5)))
		})
	})

	t.Run("a transaction of the store is repeated after a deadlock and one of a caller returns the error (OBX-099)", func(t *testing.T) {
		t.Parallel()
		for name, victim := range map[string]bool{"the caller's dies": true, "the store's dies": false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
					timeout := map[bool]string{true: "100ms", false: "1h"}
					config := r.db.Config()
					config.ConnConfig.RuntimeParams["deadlock_timeout"] = timeout[!victim]
					db, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
					require.NoError(t, err)
					t.Cleanup(db.Close)
					own := newStore(t, db, r.store.config)

					tx := r.begin()
					r.execIn(tx, `SET LOCAL deadlock_timeout = '`+timeout[victim]+`'`)
					keyed := func(key string) *outmill.Record {
						return &outmill.Record{Topic: "orders", MessageID: key, DedupKey: key}
					}
					ctx := r.store.WithTx(t.Context(), tx)
					require.NoError(t, r.store.Append(ctx, keyed("b")))
					a, b := keyed("a"), keyed("b")
					done := async(func() (int, error) { return 0, own.Append(t.Context(), a, b) })
					r.blocked(1)
					err = r.store.Append(ctx, keyed("a"))
					if victim {
						var told *pgconn.PgError
						require.ErrorAs(t, err, &told)
						require.Equal(t, "40P01", told.Code)
						require.NoError(t, tx.Rollback(t.Context()))
						await(t, done)
						require.False(t, a.Duplicate || b.Duplicate)
						return
					}
					require.NoError(t, err)
					require.NoError(t, tx.Commit(t.Context()))
					await(t, done)
					require.True(t, a.Duplicate && b.Duplicate)
				})
			})
		}
	})

	t.Run("a serialization failure in a caller's transaction is the drivers", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			tx, err := r.db.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			require.NoError(t, err)
			t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
			r.execIn(tx, `SELECT count(*) FROM {records}`)
			require.NoError(t, r.store.Append(t.Context(), deduplicated("first")))
			err = r.store.Append(r.store.WithTx(t.Context(), tx), deduplicated("second"))
			var told *pgconn.PgError
			require.ErrorAs(t, err, &told)
			require.Equal(t, "40001", told.Code)
			err = r.store.Append(r.store.WithTx(t.Context(), tx), deduplicated("third"))
			require.ErrorAs(t, err, &told)
			require.Equal(t, "25P02", told.Code)
		})
	})

	t.Run("many appends of one transaction at once are all written", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			handle := stdlib.OpenDBFromPool(r.db)
			t.Cleanup(func() { require.NoError(t, handle.Close()) })
			inner := func(ctx context.Context) {
				var writers sync.WaitGroup
				for n := range 20 {
					writers.Go(func() {
						if err := r.store.Append(ctx, made("orders", fmt.Sprint(n), 5)...); err != nil {
							t.Error(err)
						}
					})
				}
				writers.Wait()
			}
			require.NoError(t, r.store.InTx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
				inner(ctx)
				nested, err := tx.Begin(ctx)
				if err != nil {
					return err
				}
				inner(r.store.WithTx(ctx, nested))
				return nested.Commit(ctx)
			}))
			tx, err := handle.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
			require.NoError(t, err)
			inner(r.store.WithTx(t.Context(), tx))
			require.NoError(t, tx.Commit())
			require.Equal(t, 300, r.count())
		})
	})

	t.Run("an append that is cut short in a caller's transaction writes nothing", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			holder := r.begin()
			require.NoError(t, r.store.Append(r.store.WithTx(t.Context(), holder), deduplicated("first")))
			tx := r.begin()
			ctx, cancel := context.WithCancel(t.Context())
			done := async(func() (int, error) { return 0, r.store.Append(r.store.WithTx(ctx, tx), deduplicated("second")) })
			r.blocked(1)
			cancel()
			require.ErrorIs(t, (<-done).err, context.Canceled)
			require.Error(t, r.store.Append(r.store.WithTx(t.Context(), tx), deduplicated("third")))
			require.Error(t, tx.Commit(t.Context()))
			require.NoError(t, holder.Commit(t.Context()))
			require.Equal(t, 1, r.count())
			err := r.store.Append(r.store.WithTx(t.Context(), holder), deduplicated("fourth"))
			require.ErrorIs(t, err, outmill.ErrInvalidTx)
		})
	})

	t.Run("the records of one append are in their order", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			require.NoError(t, r.store.RegisterGroup(t.Context(), outmill.Registration{Group: "others"}))
			records := made("orders", "many", 5000)
			for i, one := range records {
				one.Key = "key"
				if i%3 == 0 {
					one.DedupKey = fmt.Sprint("once ", 5000-i)
				}
			}
			require.NoError(t, r.store.Append(t.Context(), records...))
			for _, group := range []string{readers, "others"} {
				require.Equal(t, namesOf(records), r.inOrder(group))
			}
		})
	})

	t.Run("ten thousand leases of many owners and claims are settled in one call", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			require.NoError(t, r.store.Append(t.Context(), made("orders", "many", 10_000)...))
			var leases []outmill.Lease
			for range 10 {
				leases = append(leases, leasesOf(claimed(t, r.store, claimOf(outmill.NewOwnerToken(), 1000, outmill.OrderNone, "orders")))...)
			}
			require.Len(t, leases, 10_000)
			wrong := leases[0]
			wrong.Claim++
			twice := append([]outmill.Lease{leases[0], wrong}, leases[1:]...)
			twice = append(append(twice, leases[:100]...), wrong)
			held, err := r.store.Extend(t.Context(), time.Minute, twice)
			require.NoError(t, err)
			require.Equal(t, 10_000, len(held))
			abandonments := make([]outmill.Settlement, len(twice))
			for i, l := range twice {
				abandonments[i] = outmill.Settlement{Lease: l, Err: fmt.Sprint(i)}
			}
			require.NoError(t, r.store.Abandon(t.Context(), abandonments))
			require.Equal(t, 10_000, valueOf[int](t, r.db, r.sql(`SELECT count(*) FROM {records} WHERE attempts = 1 AND stage = 2`)))
		})
	})
}

func deduplicated(name string) *outmill.Record {
	return &outmill.Record{Topic: "orders", MessageID: name, DedupKey: "once"}
}
