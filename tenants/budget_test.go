package tenants_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/tenants"
)

// estate is a set of PostgreSQL stores with a pool each, which are schemas of one database to be made
// quickly. All connections of the set have one application_name.
type estate struct {
	*testing.T
	set  *tenants.Set
	keys []string
	// address is that of the database, for other processes.
	address string
	watch   *pgx.Conn
}

const ofTheSet = "outmill_set"

func newEstate(t *testing.T, n int, change func(*tenants.Config)) *estate {
	t.Helper()
	e := &estate{T: t, address: postgrestest.Database(t)}
	cfg := tenants.Config{Ensure: true, Linger: -1}
	var list tenants.Static
	for i := range n {
		e.keys = append(e.keys, fmt.Sprintf("tenant_%d", i))
		list = append(list, tenants.Tenant{Key: e.keys[i], URL: e.url(e.keys[i], ofTheSet)})
	}
	cfg.Discovery = list
	change(&cfg)
	var err error
	e.watch, err = pgx.Connect(t.Context(), e.address)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.watch.Close(context.WithoutCancel(t.Context()))) })
	e.set, err = tenants.New(t.Context(), cfg, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.set.Close()) })
	awaitOpen(t, e.set, n)
	// A busy machine may need more than the time that a call waits for a connection. RegisterGroup then returns no error for
	// one of several members, which gets its registrations later.
	require.Eventually(t, func() bool { return e.set.RegisterGroup(t.Context(), outmill.Registration{}) == nil }, 2*soon, tick)
	for _, key := range e.keys {
		require.Eventually(t, func() bool { _, err := e.set.Outbox(key); return err == nil }, 2*soon, tick)
	}
	return e
}

// url is that of a tenant's store.
func (e *estate) url(key, process string) string {
	sign := "?"
	if strings.Contains(e.address, "?") {
		sign = "&"
	}
	return e.address + sign + "schema=" + key + "&application_name=" + process
}

// connections counts those of the set, as PostgreSQL does. Those that match listen.
func (e *estate) connections(query string) (n int) {
	e.Helper()
	require.NoError(e, e.watch.QueryRow(context.WithoutCancel(e.Context()), `SELECT count(*) FROM pg_stat_activity
WHERE application_name = $1 AND datname = current_database() AND query ~ $2`, ofTheSet, query).Scan(&n))
	return n
}

const (
	anyQuery = ""
	// A listening connection that is silent for 10 s is asked whether it may still write.
	listening = "^LISTEN |transaction_read_only"
)

// other is the store of a tenant in another process.
func (e *estate) other(key string) outmill.Store {
	e.Helper()
	store, err := outmill.Open(e.Context(), e.url(key, "another"), nil)
	require.NoError(e, err)
	e.Cleanup(func() { require.NoError(e, store.Close()) })
	return store
}

func (e *estate) listeners() (keys []string) {
	for _, m := range e.set.Status().Members {
		if m.Listening {
			keys = append(keys, m.Name)
		}
	}
	return keys
}

// drain claims and acks what it gets until so many records were delivered, and notes which.
func (e *estate) drain(ctx context.Context, left *atomic.Int64, seen *sync.Map) error {
	owner := outmill.NewOwnerToken()
	for left.Load() > 0 {
		found, err := e.set.Claim(ctx, outmill.ClaimRequest{Owner: owner, Limit: 20, Lease: time.Minute})
		if err != nil {
			return err
		}
		leases := make([]outmill.Lease, len(found))
		for i, r := range found {
			leases[i] = r.Lease()
			if _, twice := seen.LoadOrStore(r.MessageID, true); !twice {
				left.Add(-1)
			}
		}
		if err := e.set.Ack(ctx, "", leases); err != nil {
			return err
		}
	}
	return nil
}

func TestSet_MaxConnections(t *testing.T) {
	t.Parallel()

	t.Run("twelve databases deliver everything within six connections", func(t *testing.T) {
		t.Parallel()
		const most = 6
		each := testenv.Steps(2, 4)
		e := newEstate(t, 12, func(c *tenants.Config) { c.MaxConnections, c.MaxIdle, c.CallTimeout = most, time.Second, 2*soon })
		ctx, cancel := context.WithTimeout(t.Context(), 20*soon)
		defer cancel()
		e.set.Wake(ctx, func(string) {})
		var left atomic.Int64
		left.Store(int64(2 * each * len(e.keys)))
		var seen sync.Map
		var work sync.WaitGroup
		failures := make(chan error, 2*len(e.keys)+3)
		for _, key := range e.keys {
			other := e.other(key)
			for by, store := range map[string]outmill.Store{"ours": e.set, "theirs": other} {
				work.Go(func() {
					err := appendTo(ctx, store, key, by, each)
					if failures <- err; err != nil {
						// What was not written never comes.
						cancel()
					}
				})
			}
		}
		for range 3 {
			work.Go(func() { failures <- e.drain(ctx, &left, &seen) })
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			work.Wait()
		}()
		highest := 0
		for over := false; !over; {
			select {
			case <-done:
				over = true
			case <-time.After(tick):
				highest = max(highest, e.connections(anyQuery))
			}
		}
		close(failures)
		for err := range failures {
			require.NoError(t, err)
		}
		require.Zero(t, left.Load())
		require.LessOrEqual(t, highest, most)
		require.Greater(t, highest, most/2, "the calls use what the listeners leave")

		require.Len(t, e.listeners(), most/2)
		require.Eventually(t, func() bool { return e.connections(listening) == most/2 }, soon, tick)
		status := e.set.Status().Connections
		require.Equal(t, most, status.Most)
		require.LessOrEqual(t, e.connections(anyQuery), most, "also of a set with nothing to do")
		require.NoError(t, e.set.Close())
		require.Eventually(t, func() bool { return e.connections(anyQuery) == 0 }, soon, tick, "a busy server ends them late")
		require.Zero(t, e.set.Status().Connections.Open)
	})

	t.Run("a member that becomes busy gets the connection of a quiet one that listens", func(t *testing.T) {
		t.Parallel()
		e := newEstate(t, 2, func(c *tenants.Config) { c.MaxConnections, c.MaxIdle, c.CallTimeout = 3, time.Hour, 2*soon })
		woken := make(chan string, 100)
		e.set.Wake(t.Context(), func(topic string) { woken <- topic })
		require.Len(t, e.listeners(), 1)
		quiet := e.listeners()[0]
		busy := e.keys[0]
		if busy == quiet {
			busy = e.keys[1]
		}
		quietOther, busyOther := e.other(quiet), e.other(busy)
		require.Eventually(t, func() bool {
			require.NoError(t, busyOther.Append(t.Context(), &outmill.Record{Topic: "work"}))
			found, err := e.set.Claim(t.Context(), request(10))
			require.NoError(t, err)
			for _, r := range found {
				require.Equal(t, busy, r.Store)
				require.NoError(t, e.set.Ack(t.Context(), "", []outmill.Lease{r.Lease()}))
			}
			e.set.ChooseListeners()
			return e.listeners()[0] == busy
		}, soon, 20*time.Millisecond)
		require.Equal(t, []string{busy}, e.listeners())
		require.Eventually(t, func() bool { return e.connections(listening) == 1 }, soon, tick)

		require.NoError(t, quietOther.Append(t.Context(), &outmill.Record{Topic: "of the quiet one"}))
		require.Eventually(t, func() bool {
			require.NoError(t, busyOther.Append(t.Context(), &outmill.Record{Topic: "of the busy one"}))
			for {
				select {
				case topic := <-woken:
					require.NotEqual(t, "of the quiet one", topic)
					if topic == "of the busy one" {
						return true
					}
				default:
					return false
				}
			}
		}, soon, 20*time.Millisecond)

		for range 10 {
			e.set.ChooseListeners()
		}
		require.Equal(t, []string{busy}, e.listeners(), "about equally busy members do not take turns")
	})

	t.Run("a call that finds no connection says so and works when one is free", func(t *testing.T) {
		t.Parallel()
		// A call waits for half of it, and the set asks after it whether the member of a transaction answers, which a busy
		// machine may not do in a few seconds.
		patience := time.Duration(testenv.Steps(10, 40)) * time.Second
		e := newEstate(t, 2, func(c *tenants.Config) { c.MaxConnections, c.CallTimeout = 1, patience })
		first, second := tenants.WithTenant(t.Context(), e.keys[0]), tenants.WithTenant(t.Context(), e.keys[1])
		record := func() *outmill.Record { return &outmill.Record{Topic: topic} }
		require.NoError(t, e.set.Transact(first, func(ctx context.Context) error {
			err := e.set.Append(second, record())
			var full *storekit.ConnectionBudgetError
			require.ErrorAs(t, err, &full)
			require.Equal(t, 1, full.Most)
			require.ErrorContains(t, err, "tenants.Config.MaxConnections")
			return e.set.Append(ctx, record())
		}))
		// A busy machine may need more than the time of one call.
		require.Eventually(t, func() bool { return e.set.Append(second, record()) == nil }, soon, tick)
		// The set may have closed it again.
		require.LessOrEqual(t, e.connections(anyQuery), 1)
	})

	t.Run("a transaction of the user's counts", func(t *testing.T) {
		t.Parallel()
		e := newEstate(t, 3, func(c *tenants.Config) { c.MaxConnections, c.CallTimeout = 2, 4*soon })
		release := make(chan struct{})
		goOn := sync.OnceFunc(func() { close(release) })
		defer goOn()
		var work sync.WaitGroup
		begun := make(chan struct{}, len(e.keys))
		for _, key := range e.keys {
			outbox, err := e.set.Outbox(key)
			require.NoError(t, err)
			work.Go(func() {
				err := outbox.(*postgres.Store).Transact(t.Context(), func(context.Context) error {
					begun <- struct{}{}
					<-release
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		<-begun
		<-begun
		require.Eventually(t, func() bool { return e.set.Status().Connections.Waiting == 1 }, soon, tick)
		require.Equal(t, tenants.ConnectionStatus{Most: 2, Open: 2, Waiting: 1}, e.set.Status().Connections)
		// A busy server may still end the one of the member that waits.
		require.Eventually(t, func() bool { return e.connections(anyQuery) == 2 }, soon, tick)
		goOn()
		work.Wait()
	})

	t.Run("a member that goes gives its connections back", func(t *testing.T) {
		t.Parallel()
		var list []tenants.Tenant
		e := newEstate(t, 3, func(c *tenants.Config) {
			c.MaxConnections, c.CallTimeout = 4, 2*soon
			list, _ = c.Discovery.Tenants(t.Context())
			c.Discovery = tenants.Func(func(context.Context) ([]tenants.Tenant, error) { return list, nil })
		})
		e.set.Wake(t.Context(), func(string) {})
		gone := e.listeners()[0]
		require.Len(t, e.listeners(), 2)
		var left []tenants.Tenant
		for _, tenant := range list {
			if tenant.Key != gone {
				left = append(left, tenant)
			}
		}
		list = left
		refresh(t, e.set)
		e.set.ChooseListeners()
		require.Len(t, e.listeners(), 2)
		require.NotContains(t, e.listeners(), gone)
		require.Eventually(t, func() bool { return e.connections(listening) == 2 }, soon, tick)
	})

	t.Run("a setting below zero is refused", func(t *testing.T) {
		t.Parallel()
		_, err := tenants.New(t.Context(), tenants.Config{Discovery: tenants.Static{}, MaxConnections: -1}, nil)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "MaxConnections")
	})
}

func appendTo(ctx context.Context, store outmill.Store, key, by string, n int) error {
	var errs error
	for i := range n {
		errs = errors.Join(errs, store.Append(tenants.WithTenant(ctx, key), &outmill.Record{
			MessageID: fmt.Sprintf("%s/%s/%d", key, by, i), Topic: topic,
		}))
	}
	return errs
}
