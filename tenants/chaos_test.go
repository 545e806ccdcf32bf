package tenants_test

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
	"github.com/outmill/outmill/tenants"
)

// traffic writes numbered messages of one key to each tenant, and reads them with a subscriber
// of the set. It fails the test where a message comes under another tenant, or out of order.
type traffic struct {
	*testing.T
	set *tenants.Set
	// writing ends with stop.
	writing context.Context
	end     context.CancelFunc
	work    sync.WaitGroup

	mu sync.Mutex
	// changed is closed and replaced with each delivery.
	changed chan struct{}
	// written and seen are the highest numbers of each tenant.
	written, seen map[string]int
}

func newTraffic(t *testing.T, set *tenants.Set) *traffic {
	t.Helper()
	tr := &traffic{T: t, set: set, changed: make(chan struct{}), written: map[string]int{}, seen: map[string]int{}}
	sub, err := subscriber.New(set, subscriber.Config{Order: outmill.OrderKey, MaxErrorBackoff: 200 * time.Millisecond}, nil)
	require.NoError(t, err)
	messages, err := sub.Subscribe(t.Context(), topic)
	require.NoError(t, err)
	tr.writing, tr.end = context.WithCancel(context.WithoutCancel(t.Context()))
	var reading sync.WaitGroup
	reading.Go(func() {
		for msg := range messages {
			tr.see(msg)
			msg.Ack()
		}
	})
	t.Cleanup(func() {
		tr.stop()
		require.NoError(t, sub.Close())
		reading.Wait()
	})
	return tr
}

func (tr *traffic) see(msg *message.Message) {
	info, _ := outmill.Delivery(msg.Context())
	tenant, number, _ := strings.Cut(string(msg.Payload), "/")
	n, err := strconv.Atoi(number)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	switch {
	case err != nil:
		tr.Errorf("the payload %q was written by nobody", msg.Payload)
	case info.Store != tenant:
		tr.Errorf("%s came from the store of %s", msg.Payload, info.Store)
	case n > tr.seen[tenant]+1:
		tr.Errorf("%s came after %d: messages between them are lost or late", msg.Payload, tr.seen[tenant])
	}
	tr.seen[tenant] = max(tr.seen[tenant], n)
	close(tr.changed)
	tr.changed = make(chan struct{})
}

// write has a writer write to the tenant until stop. An append that fails is repeated, because
// it may have had no effect.
func (tr *traffic) write(tenant string) {
	ctx := tr.writing
	tr.work.Go(func() {
		for n := 1; ctx.Err() == nil; {
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), soon)
			err := tr.set.Append(within, &outmill.Record{Topic: topic, TenantID: tenant, Key: "one", Payload: fmt.Appendf(nil, "%s/%d", tenant, n)})
			cancel()
			if err != nil {
				continue
			}
			tr.mu.Lock()
			tr.written[tenant] = n
			ahead := n - tr.seen[tenant]
			changed := tr.changed
			tr.mu.Unlock()
			if n++; ahead > 100 {
				select {
				case <-changed:
				case <-ctx.Done():
				}
			}
		}
	})
}

func (tr *traffic) stop() {
	tr.end()
	tr.work.Wait()
}

// await returns when the condition holds for what was seen.
func (tr *traffic) await(what string, holds func(written, seen map[string]int) bool) {
	tr.Helper()
	late := time.After(3 * soon)
	for {
		tr.mu.Lock()
		done, changed := holds(tr.written, tr.seen), tr.changed
		tr.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-late:
			require.FailNow(tr, "waited too long", "%s: written %v, seen %v", what, tr.written, tr.seen)
		}
	}
}

// connections counts the other connections to the database of the pool, which has one.
func connections(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	var n int
	require.NoError(t, pool.QueryRow(t.Context(),
		`SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&n))
	return n
}

func withSetting(t *testing.T, address, name, value string) string {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	values := u.Query()
	values.Set(name, value)
	u.RawQuery = values.Encode()
	return u.String()
}

func TestSet_Chaos(t *testing.T) {
	t.Parallel()

	t.Run("a tenant's server is killed and comes back under load, and others go on", func(t *testing.T) {
		t.Parallel()
		server := postgrestest.Own(t)
		mortal, err := postgres.Open(t.Context(), server.URL, postgres.Config{}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, mortal.Close()) })
		calm, err := postgres.Open(t.Context(), postgrestest.Database(t), postgres.Config{}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, calm.Close()) })
		file, err := sqlite.Open(t.Context(), "file:"+filepath.Join(t.TempDir(), "calm.db"), sqlite.Config{BusyTimeout: soon}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, file.Close()) })
		for _, store := range []outmill.Store{mortal, calm, file} {
			require.NoError(t, store.Ensure(t.Context()))
		}
		set, err := tenants.New(t.Context(), tenants.Config{CallTimeout: 2 * time.Second, Discovery: tenants.Static{
			{Key: "mortal", Store: mortal}, {Key: "calm", Store: calm}, {Key: "file", Store: file},
		}}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, set.Close()) })
		awaitOpen(t, set, 3)

		tr := newTraffic(t, set)
		names := []string{"mortal", "calm", "file"}
		for _, name := range names {
			tr.write(name)
		}
		for range testenv.Steps(1, 3) {
			before := map[string]int{}
			further := func(by int, names ...string) func(_, seen map[string]int) bool {
				return func(_, seen map[string]int) bool {
					for _, name := range names {
						if seen[name] < before[name]+by {
							return false
						}
					}
					return true
				}
			}
			note := func(_, seen map[string]int) bool {
				for _, name := range names {
					before[name] = seen[name]
				}
				return true
			}
			tr.await("all", note)
			tr.await("all deliver", further(50, names...))
			require.NoError(t, server.Kill(t.Context()))
			tr.await("all", note)
			tr.await("others deliver while one server is dead", further(200, "calm", "file"))
			require.NoError(t, server.Start(t.Context()))
			tr.await("all", note)
			tr.await("the tenant delivers again", further(50, "mortal"))
		}
		tr.stop()
		tr.await("each message arrives", func(written, seen map[string]int) bool {
			for _, name := range names {
				if seen[name] < written[name] {
					return false
				}
			}
			return true
		})
	})
}

// Tests that are not parallel run before those that are, so that this one counts its own
// goroutines only.
func TestSet_ComeAndGo_Serial(t *testing.T) {
	t.Run("30 tenants come and go under load, and take their goroutines and connections with them", func(t *testing.T) {
		// A tenant that stays has a pool of two and a connection that listens.
		const many, ofOne = 30, 3
		address := postgrestest.Database(t)
		watch, err := pgxpool.New(t.Context(), withSetting(t, address, "pool_max_conns", "1"))
		require.NoError(t, err)
		t.Cleanup(watch.Close)
		var mu sync.Mutex
		keys := []string{"stays"}
		change := func(to ...string) {
			mu.Lock()
			defer mu.Unlock()
			keys = to
		}
		set, err := tenants.New(t.Context(), tenants.Config{
			Ensure: true, Refresh: -1, Linger: -1, CallTimeout: patient,
			Discovery: tenants.Func(func(context.Context) ([]tenants.Tenant, error) {
				mu.Lock()
				defer mu.Unlock()
				list := make([]tenants.Tenant, len(keys))
				for i, key := range keys {
					list[i] = tenants.Tenant{Key: key, URL: withSetting(t, address, "pool_max_conns", "2") + "#" + key}
				}
				return list, nil
			}),
			Open: func(ctx context.Context, tenant tenants.Tenant) (outmill.Store, error) {
				address, _, _ := strings.Cut(tenant.URL, "#")
				return postgres.Open(ctx, address, postgres.Config{Schema: tenant.Key}, nil)
			},
		}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, set.Close()) })

		tr := newTraffic(t, set)
		tr.write("stays")
		tr.await("the tenant delivers", func(_, seen map[string]int) bool { return seen["stays"] > 50 })
		goroutines := runtime.NumGoroutine()

		for round := range testenv.Steps(1, 3) {
			var guests []string
			for i := range many {
				guests = append(guests, fmt.Sprintf("guest_%d_%d", round, i))
			}
			change(append([]string{"stays"}, guests...)...)
			refresh(t, set)
			require.Greater(t, connections(t, watch), ofOne)
			for _, guest := range guests {
				for n := range 3 {
					require.NoError(t, set.Append(t.Context(),
						&outmill.Record{Topic: topic, TenantID: guest, Key: "one", Payload: fmt.Appendf(nil, "%s/%d", guest, n+1)}))
				}
			}
			tr.await("each guest's messages arrive", func(_, seen map[string]int) bool {
				for _, guest := range guests {
					if seen[guest] < 3 {
						return false
					}
				}
				return true
			})
			change("stays")
			refresh(t, set)
			require.Eventually(t, func() bool { return len(set.Status().Members) == 1 && connections(t, watch) <= ofOne },
				soon, 10*time.Millisecond, "connections")
			require.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines+few }, soon, 10*time.Millisecond,
				"goroutines: %d before, %d now", goroutines, runtime.NumGoroutine())
		}
		tr.stop()
		tr.await("each message arrives", func(written, seen map[string]int) bool { return seen["stays"] >= written["stays"] })
	})
}

// few is how many goroutines of running calls may differ between two counts, far less than the
// tenants that came and went.
const few = 10
