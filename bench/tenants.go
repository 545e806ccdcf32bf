package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/tenants"
)

const tenantsAbout = `One tenant has n messages waiting, and 49 tenants have 10 each. A tenants.Set with its default strategy claims -batch
records at a time, and acks these, until all are acked. A single store with as many messages is drained in the same way. The tenants
are SQLite files in the machine's temporary directory, then schemas of one PostgreSQL database, which share a pool, then PostgreSQL
databases of one server, with a pool each. -only measures one of the three. PostgreSQL runs with fsync on. Each tenant, and the single
store, has handled messages before, as in a service that runs, because the first claim of a connection waits for plans of PostgreSQL:
10 messages, and 20 times as many each schema, because each connection of the pool has plans for each schema. The pool of the schemas
keeps the plans of all of them (statement_cache_capacity).

  sqlite_single_per_s              claims and acks of the single store
  sqlite_tenants_per_s             claims and acks of the set
  sqlite_small_done_s              seconds until the last message of the 49 was acked; the goal is at most 1
  sqlite_ratio                     sqlite_tenants / sqlite_single; the goal is at least 0.8
  postgres_single_per_s            as of SQLite
  postgres_schemas_per_s           "
  postgres_schemas_small_done_s    "
  postgres_schemas_ratio           postgres_schemas / postgres_single; the goal is at least 0.8
  postgres_databases_per_s         as of SQLite
  postgres_databases_small_done_s  "
  postgres_databases_ratio         postgres_databases / postgres_single; the goal is at least 0.8

All of them also give, which says more than the rates while other programs use the processor,

  sqlite_single_cpu_us             processor time for a message, of the bench and of PostgreSQL, if that runs on this machine, µs
  sqlite_tenants_cpu_us            "
  postgres_single_cpu_us           "
  postgres_schemas_cpu_us          "
  postgres_databases_cpu_us        "
  sqlite_cpu_ratio                 sqlite_single_cpu / sqlite_tenants_cpu
  postgres_schemas_cpu_ratio       postgres_single_cpu / postgres_schemas_cpu
  postgres_databases_cpu_ratio     postgres_single_cpu / postgres_databases_cpu`

const (
	fewWaiting  = 10
	largeTenant = "large"

	onlySQLite, onlySchemas, onlyDatabases = "sqlite", "schemas", "databases"
	// tenantConns is the size of the pool of each PostgreSQL database, and schemaConns that of the pool of all schemas.
	tenantConns, schemaConns = 3, 8
	// statementsOf is about how many statements a connection keeps for a schema.
	statementsOf = 26
	// schemaWarmUps is how often each schema handles a few messages before the measurement.
	schemaWarmUps = 20
)

func init() {
	scenarios = append(scenarios, scenario{
		name: "tenants", help: "one large tenant and 49 small ones, compared with a single store",
		about: tenantsAbout, n: 100_000, short: 2_000, measure: measureTenants,
	})
}

// smallTenants is the number of tenants with few messages.
func (b *bench) smallTenants() int {
	if b.short {
		return 4
	}
	return 49
}

func measureTenants(ctx context.Context, b *bench) error {
	if !slices.Contains([]string{"", onlySQLite, onlySchemas, onlyDatabases}, b.only) {
		return fmt.Errorf("there are no tenants %q", b.only)
	}
	wanted := func(only string) bool { return b.only == "" || b.only == only }
	if wanted(onlySQLite) {
		of := fleet{title: "SQLite, a file each", tenants: "sqlite_tenants_per_s", smallDone: "sqlite_small_done_s", ratio: "sqlite_ratio",
			cpuRatio: "sqlite_cpu_ratio", opener: sqliteTenants, warmUps: 1}
		if err := b.compareTenants(ctx, "sqlite_single_per_s", "SQLite, a single store", sqliteOpener, noServer, of); err != nil {
			return err
		}
	}
	var fleets []fleet
	if wanted(onlySchemas) {
		fleets = append(fleets, fleet{title: "PostgreSQL, a schema each", tenants: "postgres_schemas_per_s",
			smallDone: "postgres_schemas_small_done_s", ratio: "postgres_schemas_ratio", cpuRatio: "postgres_schemas_cpu_ratio", opener: schemaTenants,
			warmUps: schemaWarmUps})
	}
	if wanted(onlyDatabases) {
		fleets = append(fleets, fleet{title: "PostgreSQL, a database each", tenants: "postgres_databases_per_s",
			smallDone: "postgres_databases_small_done_s", ratio: "postgres_databases_ratio", cpuRatio: "postgres_databases_cpu_ratio",
			opener: databaseTenants, warmUps: 1})
	}
	if len(fleets) == 0 {
		return nil
	}
	return b.compareTenants(ctx, "postgres_single_per_s", "PostgreSQL, a single store", postgresOpener, postgresTime, fleets...)
}

// fleet is one kind of tenants, with the names of its results.
type fleet struct {
	title, tenants, smallDone, ratio, cpuRatio string
	opener                                     func(ctx context.Context, b *bench) (tenantOpener, error)
	// warmUps is how often each tenant handles a few messages before the measurement.
	warmUps int
}

// tenantOpener returns the empty store of a tenant, again and again.
type tenantOpener func(ctx context.Context, number int) (outmill.Store, error)

// compareTenants drains a single store and the fleets in turn.
func (b *bench) compareTenants(ctx context.Context, singleField, singleTitle string,
	singleOpener func(context.Context, *bench) (opener, error), server func(context.Context, *bench) (usedTime, error),
	fleets ...fleet) (err error) {
	open, err := singleOpener(ctx, b)
	if err != nil {
		return err
	}
	used, err := server(ctx, b)
	if err != nil {
		return err
	}
	all := b.n + b.smallTenants()*fewWaiting
	single := &storing{b: b, open: open, owner: outmill.NewOwnerToken()}
	defer func() { err = errors.Join(err, single.close()) }()
	sides := []side{{field: singleField, title: singleTitle, n: all, run: single.settle(all, b.batch),
		prepare: func(ctx context.Context) error {
			if err := single.prepare(fewWaiting)(ctx); err != nil {
				return err
			}
			if _, err := single.settle(fewWaiting, b.batch)(ctx); err != nil {
				return err
			}
			return b.appendTo(ctx, single.store, all)
		}}}
	sets := make([]*tenanting, len(fleets))
	for i, f := range fleets {
		openTenant, err := f.opener(ctx, b)
		if err != nil {
			return err
		}
		set := &tenanting{b: b, open: openTenant, warmUps: f.warmUps, owner: outmill.NewOwnerToken()}
		defer func() { err = errors.Join(err, set.close()) }()
		sets[i] = set
		sides = append(sides, side{field: f.tenants, title: f.title, n: all, prepare: set.prepare, run: set.run})
	}
	for i := range sides {
		sides[i].run = b.timed(used, sides[i])
	}
	if err := b.compare(ctx, sides...); err != nil {
		return err
	}
	for i, f := range fleets {
		for _, done := range sets[i].smallDone {
			b.results.add(f.smallDone, f.title+", seconds until the small ones are done", done.Seconds())
		}
		b.results.ratio(f.ratio, f.title+" / single store", f.tenants, singleField)
		b.results.ratio(f.cpuRatio, "single store / "+f.title+", processor time", cpuField(singleField), cpuField(f.tenants))
	}
	return nil
}

// usedTime is the processor time of a server until now.
type usedTime func() (time.Duration, error)

func noServer(context.Context, *bench) (usedTime, error) {
	return func() (time.Duration, error) { return 0, nil }, nil
}

func postgresTime(ctx context.Context, b *bench) (usedTime, error) {
	pool, err := b.database(ctx, "time")
	if err != nil {
		return nil, err
	}
	first, remote := postmaster(ctx, pool)
	if remote != nil {
		return noServer(ctx, b)
	}
	return func() (time.Duration, error) { return serverTime(first) }, nil
}

func cpuField(rate string) string { return strings.TrimSuffix(rate, "_per_s") + "_cpu_us" }

// timed also adds the processor time for each message.
func (b *bench) timed(server usedTime, s side) func(ctx context.Context) (time.Duration, error) {
	used := func() (time.Duration, error) {
		ours, err := ownTime()
		theirs, serverErr := server()
		return ours + theirs, errors.Join(err, serverErr)
	}
	return func(ctx context.Context) (time.Duration, error) {
		before, err := used()
		if err != nil {
			return 0, err
		}
		began := time.Now()
		if took, err := s.run(ctx); err != nil {
			return took, err
		}
		took := time.Since(began)
		after, err := used()
		b.results.add(cpuField(s.field), s.title+", processor time, µs", float64((after-before).Microseconds())/float64(s.n))
		return took, err
	}
}

func sqliteTenants(ctx context.Context, b *bench) (tenantOpener, error) {
	open, err := sqliteOpener(ctx, b)
	return func(ctx context.Context, _ int) (outmill.Store, error) { return open(ctx) }, err
}

func schemaTenants(ctx context.Context, b *bench) (tenantOpener, error) {
	pool, err := b.databaseWith(ctx, "schemas", func(config *pgxpool.Config) {
		config.MaxConns = schemaConns
		config.ConnConfig.StatementCacheCapacity = statementsOf * (b.smallTenants() + 1)
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, number int) (outmill.Store, error) {
		return outboxIn(ctx, pool, fmt.Sprintf("tenant_%d", number))
	}, nil
}

// databaseTenants makes the databases before anything is measured.
func databaseTenants(ctx context.Context, b *bench) (tenantOpener, error) {
	b.say("creating %d databases", b.smallTenants()+1)
	pools := make([]*pgxpool.Pool, b.smallTenants()+1)
	for i := range pools {
		var err error
		small := func(config *pgxpool.Config) { config.MaxConns = tenantConns }
		if pools[i], err = b.databaseWith(ctx, "tenant", small); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context, number int) (outmill.Store, error) {
		return outbox(ctx, pools[number])
	}, nil
}

// tenanting is a set of one large tenant and many small ones.
type tenanting struct {
	b       *bench
	open    tenantOpener
	warmUps int
	owner   outmill.OwnerToken
	stores  []outmill.Store
	set     *tenants.Set
	// smallDone has, for each run, the time until the small tenants had nothing left.
	smallDone []time.Duration
}

func (t *tenanting) close() (err error) {
	if t.set != nil {
		err = t.set.Close()
	}
	for _, store := range t.stores {
		err = errors.Join(err, store.Close())
	}
	t.set, t.stores = nil, nil
	return err
}

func (t *tenanting) prepare(ctx context.Context) (err error) {
	if err := t.close(); err != nil {
		return err
	}
	list := make(tenants.Static, 0, t.b.smallTenants()+1)
	for i := range t.b.smallTenants() + 1 {
		store, err := t.open(ctx, i)
		if err != nil {
			return err
		}
		t.stores = append(t.stores, store)
		list = append(list, tenants.Tenant{Key: tenantKey(i), Store: store})
	}
	if t.set, err = tenants.New(ctx, tenants.Config{Discovery: list, Linger: -1}, nil); err != nil {
		return err
	}
	if err := t.set.RegisterGroup(ctx, outmill.Registration{Topics: outmill.Topics{Include: []string{storesTopic}}}); err != nil {
		return err
	}
	warmUps := t.warmUps
	if t.b.short {
		warmUps = 1
	}
	for range warmUps {
		if err := t.fill(ctx, fewWaiting); err != nil {
			return err
		}
		if _, err := t.drain(ctx, fewWaiting); err != nil {
			return err
		}
	}
	return t.fill(ctx, t.b.n)
}

func tenantKey(number int) string {
	if number == 0 {
		return largeTenant
	}
	return fmt.Sprintf("small-%d", number)
}

// fill lets so many messages of the large tenant wait, and a few of each other one.
func (t *tenanting) fill(ctx context.Context, large int) error {
	for i := range t.b.smallTenants() + 1 {
		waiting := fewWaiting
		if i == 0 {
			waiting = large
		}
		if err := t.b.appendTo(tenants.WithTenant(ctx, tenantKey(i)), t.set, waiting); err != nil {
			return err
		}
	}
	return nil
}

// appendTo appends records to a store whose group is registered.
func (b *bench) appendTo(ctx context.Context, store outmill.Store, n int) error {
	for from := 0; from < n; from += appendAtOnce {
		if err := store.Append(ctx, records(storesTopic, from, min(appendAtOnce, n-from), b.size, true)...); err != nil {
			return fmt.Errorf("append: %w", err)
		}
	}
	return nil
}

func (t *tenanting) run(ctx context.Context) (time.Duration, error) {
	small, err := t.drain(ctx, t.b.n)
	t.smallDone = append(t.smallDone, small)
	return 0, err
}

// drain claims and acks what fill has appended, and returns when the small tenants had nothing left. It claims again
// where a claim gives nothing, because the set may have let its members rest.
func (t *tenanting) drain(ctx context.Context, large int) (smallDone time.Duration, err error) {
	began := time.Now()
	small := t.b.smallTenants() * fewWaiting
	for left := large + small; left > 0; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		claimed, err := t.set.Claim(ctx, outmill.ClaimRequest{
			Owner: t.owner, Topics: outmill.Topics{Include: []string{storesTopic}}, Limit: min(t.b.batch, left), Lease: time.Minute,
		})
		if err != nil {
			return 0, err
		}
		if len(claimed) == 0 {
			// A worker would wait for a wake-up.
			select {
			case <-ctx.Done():
			case <-time.After(time.Millisecond):
			}
			continue
		}
		leases, ofSmall := make([]outmill.Lease, len(claimed)), 0
		for i, r := range claimed {
			leases[i] = r.Lease()
			if r.Store != largeTenant {
				ofSmall++
			}
		}
		if err := t.set.Ack(ctx, "", leases); err != nil {
			return 0, err
		}
		left -= len(claimed)
		if small -= ofSmall; small == 0 && ofSmall > 0 {
			smallDone = time.Since(began)
		}
	}
	return smallDone, nil
}
