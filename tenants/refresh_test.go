package tenants_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storetest/memstore"
	"github.com/outmill/outmill/tenants"
)

// town is a discovery and the databases that it names: a URL names a database.
type town struct {
	t *testing.T

	mu        sync.Mutex
	tenants   map[string]string
	err       error
	asked     int
	databases map[string]*memstore.Database
	opened    []*spy
	faults    map[string]error
}

func newTown(t *testing.T, list map[string]string) *town {
	return &town{t: t, tenants: list, databases: map[string]*memstore.Database{}, faults: map[string]error{}}
}

func (w *town) Tenants(context.Context) ([]tenants.Tenant, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	var list []tenants.Tenant
	for key, url := range w.tenants {
		list = append(list, tenants.Tenant{Key: key, URL: url})
	}
	return list, w.err
}

func (w *town) open(_ context.Context, tenant tenants.Tenant) (outmill.Store, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.faults[tenant.URL]; err != nil {
		return nil, err
	}
	// The text behind # is a setting, and not a database.
	name, _, _ := strings.Cut(tenant.URL, "#")
	db := w.databases[name]
	if db == nil {
		db = memstore.NewDatabase()
		w.databases[name] = db
	}
	s := &spy{Store: memstore.New(db, memstore.Options{Name: tenant.URL}), db: db, calls: map[string]int{}, faults: map[string]error{}}
	w.opened = append(w.opened, s)
	return s, nil
}

func (w *town) change(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn()
}

// storesOf returns the stores that were opened by that URL.
func (w *town) storesOf(url string) (list []*spy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.opened {
		if s.Name() == url {
			list = append(list, s)
		}
	}
	return list
}

func (w *town) set(change func(*tenants.Config)) *rig {
	return newRig(w.t, nil, func(c *tenants.Config) {
		c.Discovery, c.Open, c.Ensure, c.Refresh = w, w.open, true, -1
		if change != nil {
			change(c)
		}
	})
}

func states(set *tenants.Set) (list []string) {
	for _, m := range set.Status().Members {
		list = append(list, fmt.Sprintf("%s %s", m.Name, m.State))
	}
	return list
}

func TestSet_Refresh(t *testing.T) {
	t.Parallel()

	t.Run("opens new tenants, with the schema and the registrations of the set (OBX-077)", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, map[string]string{"a": "mem:a"})
		r := w.set(nil)
		require.NoError(t, r.set.RegisterGroup(t.Context(), outmill.Registration{Group: "second"}))
		w.change(func() { w.tenants["b"] = "mem:b" })
		_, err := r.set.Outbox("b")
		require.Error(t, err)
		require.NoError(t, r.set.Refresh(t.Context()))
		require.Equal(t, []string{"a", "b"}, r.set.Keys())
		r.append("b", 1)
		require.Len(t, r.claim(10), 1)
		left, err := r.set.List(t.Context(), outmill.ListQuery{Group: "second"})
		require.NoError(t, err)
		require.Len(t, left, 1)
	})

	t.Run("keeps the store of a tenant that has not changed (OBX-079)", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, map[string]string{"a": "mem:a"})
		r := w.set(nil)
		for range 3 {
			require.NoError(t, r.set.Refresh(t.Context()))
		}
		require.Len(t, w.storesOf("mem:a"), 1)
	})

	t.Run("lets a removed tenant finish what is in flight, and then closes its store (OBX-078)", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, map[string]string{"a": "mem:a", "b": "mem:b"})
		r := w.set(nil)
		r.append("b", 2)
		found := r.claim(1)
		require.Len(t, found, 1)
		w.change(func() { delete(w.tenants, "b") })
		require.NoError(t, r.set.Refresh(t.Context()))
		require.Equal(t, []string{"a ready", "b draining"}, states(r.set))
		require.Empty(t, r.claim(1), "nothing more is claimed from it")
		_, err := r.set.Outbox("b")
		require.Error(t, err)
		standing, err := r.set.Extend(t.Context(), time.Hour, leasesOf(found))
		require.NoError(t, err)
		require.Equal(t, leasesOf(found), standing)
		store := w.storesOf("mem:b")[0]
		require.False(t, store.isClosed())

		r.ack(found...)
		require.Eventually(t, store.isClosed, soon, tick)
		require.Eventually(t, func() bool { return len(states(r.set)) == 1 }, soon, tick)
		r.ack(found...)
	})

	t.Run("closes the store of a removed tenant when the leases that nobody settles have ended", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, map[string]string{"b": "mem:b"})
		r := w.set(nil)
		r.append("b", 1)
		req := request(1)
		req.Lease = 50 * time.Millisecond
		found, err := r.set.Claim(t.Context(), req)
		require.NoError(t, err)
		require.Len(t, found, 1)
		w.change(func() { clear(w.tenants) })
		require.NoError(t, r.set.Refresh(t.Context()))
		require.Eventually(t, w.storesOf("mem:b")[0].isClosed, soon, tick)
	})

	t.Run("swaps the store of a changed tenant without losing a record", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, map[string]string{"a": "mem:a"})
		r := w.set(nil)
		r.append("a", 3)
		found := r.claim(1)
		w.change(func() { w.tenants["a"] = "mem:a#pool=2" })
		require.NoError(t, r.set.Refresh(t.Context()))
		require.Equal(t, []string{"a ready", "a draining"}, states(r.set))
		before, after := w.storesOf("mem:a")[0], w.storesOf("mem:a#pool=2")[0]
		rest := r.claim(10)
		require.Len(t, rest, 2)
		require.Zero(t, after.called("Ack"))
		r.ack(found...)
		require.Equal(t, 1, before.called("Ack"), "the store that handed it out settles it")
		r.ack(rest...)
		require.Equal(t, 1, after.called("Ack"))
		require.Eventually(t, before.isClosed, soon, tick)
		require.False(t, after.isClosed())
		require.Empty(t, r.claim(10))
	})

	t.Run("settles a lease in the new store when the old one has gone", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, map[string]string{"a": "mem:a"})
		r := w.set(nil)
		r.append("a", 1)
		// A claim of another process of the fleet, or of this one before it was started again.
		found, err := memstore.New(w.databases["mem:a"], memstore.Options{}).Claim(t.Context(), request(1))
		require.NoError(t, err)
		found[0].Store = "a"
		w.change(func() { w.tenants["a"] = "mem:a#pool=2" })
		require.NoError(t, r.set.Refresh(t.Context()))
		require.Eventually(t, w.storesOf("mem:a")[0].isClosed, soon, tick)
		r.ack(found...)
		left, err := r.set.List(t.Context(), outmill.ListQuery{})
		require.NoError(t, err)
		require.Empty(t, left)
	})

	t.Run("keeps the old store while the new one cannot be opened", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, map[string]string{"a": "mem:a"})
		r := w.set(nil)
		w.change(func() { w.tenants["a"], w.faults["mem:other"] = "mem:other", errAway })
		err := r.set.Refresh(t.Context())
		require.ErrorIs(t, err, errAway)
		var in *tenants.MemberError
		require.ErrorAs(t, err, &in)
		require.Equal(t, "a", in.Member)
		require.Equal(t, []string{"a opening", "a ready"}, states(r.set))
		require.ErrorIs(t, r.set.Status().Members[0].Err, errAway)
		r.append("a", 1)
		require.Len(t, r.claim(1), 1)
	})

	t.Run("tries again to open a store, and names the reason until then", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, map[string]string{"a": "mem:a"})
		w.faults["mem:a"] = errAway
		r := w.set(nil)
		_, err := r.set.Outbox("a")
		var unknown *tenants.UnknownTenantError
		require.ErrorAs(t, err, &unknown)
		require.ErrorIs(t, err, errAway)
		require.NotEmpty(t, r.reported())
		w.change(func() { clear(w.faults) })
		require.Eventually(t, func() bool { _, err := r.set.Outbox("a"); return err == nil }, soon, tick)
	})

	t.Run("gives a store six times CallTimeout to open and to make its schema, and a minute at least", func(t *testing.T) {
		t.Parallel()
		for callTimeout, most := range map[time.Duration]time.Duration{5 * time.Second: time.Minute, time.Hour: 6 * time.Hour} {
			w := newTown(t, map[string]string{"a": "mem:a"})
			began := time.Now()
			var until time.Time
			w.set(func(c *tenants.Config) {
				c.CallTimeout = callTimeout
				c.Open = func(ctx context.Context, tenant tenants.Tenant) (outmill.Store, error) {
					until, _ = ctx.Deadline()
					return w.open(ctx, tenant)
				}
			})
			require.WithinRange(t, until, began.Add(most), time.Now().Add(most))
		}
	})

	t.Run("keeps the last answer of a discovery that fails, and shows it", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, map[string]string{"a": "mem:a"})
		r := w.set(nil)
		answered := r.set.Status().Discovery
		require.NoError(t, answered.Err)
		require.Equal(t, 1, answered.Tenants)
		w.change(func() { w.err = errAway; clear(w.tenants) })
		require.ErrorIs(t, r.set.Refresh(t.Context()), errAway)
		status := r.set.Status().Discovery
		require.ErrorIs(t, status.Err, errAway)
		require.Equal(t, answered.AnsweredAt, status.AnsweredAt)
		require.True(t, status.AskedAt.After(answered.AskedAt))
		require.Equal(t, []string{"a ready"}, states(r.set))
	})

	t.Run("asks the discovery by itself (OBX-075), and again soon after it failed", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, map[string]string{})
		r := w.set(func(c *tenants.Config) { c.Refresh = 10 * time.Millisecond })
		w.change(func() { w.err = errAway; w.tenants["a"] = "mem:a" })
		require.Eventually(t, func() bool { return r.set.Status().Discovery.Err != nil }, soon, tick)
		w.change(func() { w.err = nil })
		require.Eventually(t, func() bool { return len(r.set.Keys()) == 1 }, soon, tick)
	})

	t.Run("refuses an answer that makes no sense", func(t *testing.T) {
		t.Parallel()
		store := newSpy(t, "one")
		for name, list := range map[string][]tenants.Tenant{
			"no key":        {{URL: "mem:a"}},
			"a key twice":   {{Key: "a", URL: "mem:a"}, {Key: "a", URL: "mem:b"}},
			"a URL twice":   {{Key: "a", URL: "mem:a"}, {Key: "b", URL: "mem:a"}},
			"a store twice": {{Key: "a", Store: store}, {Key: "b", Store: store}},
			"neither":       {{Key: "a"}},
			"both":          {{Key: "a", Store: store, URL: "mem:a"}},
		} {
			_, err := tenants.New(t.Context(), tenants.Config{Discovery: tenants.Static(list)}, nil)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig, name)
		}
	})

	t.Run("leaves goroutines, leases and stores as they were after many come and go", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, map[string]string{"a": "mem:a"})
		r := w.set(nil)
		for round := range 3 {
			w.change(func() {
				for i := range 30 {
					w.tenants[fmt.Sprint("t", i)] = fmt.Sprintf("mem:t%d-%d", i, round)
				}
			})
			require.NoError(t, r.set.Refresh(t.Context()))
			require.Len(t, r.set.Keys(), 31)
			for i := range 30 {
				r.append(fmt.Sprint("t", i), 1)
			}
			for left := 30; left > 0; {
				found := r.claim(100)
				require.NotEmpty(t, found)
				left -= len(found)
				r.ack(found...)
			}
			w.change(func() { clear(w.tenants); w.tenants["a"] = "mem:a" })
			require.NoError(t, r.set.Refresh(t.Context()))
			require.Eventually(t, func() bool { return len(states(r.set)) == 1 }, soon, tick)
		}
		for _, s := range w.opened {
			if s.Name() == "mem:a" {
				require.False(t, s.isClosed())
				continue
			}
			// The set forgets a member before it closes the store.
			require.Eventually(t, s.isClosed, soon, tick, s.Name())
		}
	})
}

func TestSet_Close(t *testing.T) {
	t.Parallel()

	t.Run("closes the stores that the set has opened, and no others", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, map[string]string{"a": "mem:a"})
		r := w.set(nil)
		require.NoError(t, r.set.Close())
		require.True(t, w.storesOf("mem:a")[0].isClosed())
		own := newRig(t, []string{"b"}, nil)
		require.NoError(t, own.set.Close())
		require.False(t, own.members["b"].isClosed())
		for _, set := range []*tenants.Set{r.set, own.set} {
			_, err := set.Claim(t.Context(), request(1))
			require.ErrorIs(t, err, outmill.ErrClosed)
			_, err = set.Outbox("a")
			require.ErrorIs(t, err, outmill.ErrClosed)
			require.ErrorIs(t, set.Refresh(t.Context()), outmill.ErrClosed)
			require.NoError(t, set.Close())
		}
	})

	t.Run("does not wait for leases of members that drain", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, map[string]string{"a": "mem:a"})
		r := w.set(func(c *tenants.Config) { c.Linger = time.Hour })
		r.append("a", 1)
		require.Len(t, r.claim(1), 1)
		w.change(func() { clear(w.tenants) })
		require.NoError(t, r.set.Refresh(t.Context()))
		require.NoError(t, r.set.Close())
		require.True(t, w.storesOf("mem:a")[0].isClosed())
	})
}

func TestQuery(t *testing.T) {
	t.Parallel()

	t.Run("finds tenants in a table, whose stores are opened by URL", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		db, err := sql.Open("sqlite", filepath.Join(dir, "catalog.db"))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		_, err = db.ExecContext(t.Context(), `CREATE TABLE tenants (key TEXT, url TEXT, live INTEGER);
			INSERT INTO tenants VALUES ('a', ?, 1), ('b', ?, 0)`, "sqlite:"+filepath.Join(dir, "a.db"), "sqlite:"+filepath.Join(dir, "b.db"))
		require.NoError(t, err)
		query := tenants.Query{DB: db, SQL: `SELECT key, url FROM tenants WHERE live = ?`, Args: []any{1}}
		set, err := tenants.New(t.Context(), tenants.Config{Discovery: query, Ensure: true, CallTimeout: patient}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, set.Close()) })
		awaitOpen(t, set, 1)
		require.Equal(t, []string{"a"}, set.Keys())
		store, err := set.Outbox("a")
		require.NoError(t, err)
		_, ok := outmill.As[*sqlite.Store](store)
		require.True(t, ok)
		_, err = db.ExecContext(t.Context(), `UPDATE tenants SET live = 1`)
		require.NoError(t, err)
		refresh(t, set)
		require.Equal(t, []string{"a", "b"}, set.Keys())
	})

	t.Run("returns the database's error, and says what it wants", func(t *testing.T) {
		t.Parallel()
		db, err := sql.Open("sqlite", ":memory:")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		_, err = tenants.Query{DB: db, SQL: "SELECT 1"}.Tenants(t.Context())
		require.ErrorContains(t, err, "two columns")
		_, err = tenants.Query{DB: db, SQL: "SELECT a FROM nothing"}.Tenants(t.Context())
		require.ErrorContains(t, err, "nothing")
		_, err = tenants.Query{}.Tenants(t.Context())
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	})

	t.Run("a function is a discovery too", func(t *testing.T) {
		t.Parallel()
		failing := tenants.Func(func(context.Context) ([]tenants.Tenant, error) { return nil, errAway })
		_, err := tenants.New(t.Context(), tenants.Config{Discovery: failing}, nil)
		require.True(t, errors.Is(err, errAway))
	})
}
