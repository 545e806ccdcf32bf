package tenants

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Config has the settings of a Set. Only Discovery is required.
type Config struct {
	// Name identifies the set in logs. Default "tenants".
	Name string
	// Discovery says which tenants there are: [Static], a [Query], postgres.Schemas, mongo.Databases, or
	// your own.
	Discovery Discovery
	// Refresh is how often the discovery is asked. Default 5 min; negative is only by Set.Refresh.
	Refresh time.Duration
	// Open opens the store of a tenant that the discovery has named without one. Default:
	// that of the Discovery where it is an [Opener], or else outmill.Open with the tenant's URL. The set closes what Open
	// returns. Pass the context on to outmill.Open or the Open of a store, because it has the budget of MaxConnections.
	Open func(ctx context.Context, tenant Tenant) (outmill.Store, error)
	// Ensure has the set call Ensure of each store before its first use. Default false.
	Ensure bool
	// Linger is how long a member that is to be closed stays open for transactions of the user's, at
	// least: set it to more than the longest of them. A publish in one that outlasts it writes nothing
	// and fails. Those of Set.Transact need no Linger. Default 1 min; negative is not at all.
	Linger time.Duration

	// Strategy chooses the member of a claim. Default nil: a claim asks several members in
	// parallel and shares its limits among them, the more for a member the longer its records
	// have waited. See [RoundRobin] and [DrainFirst].
	Strategy Strategy
	// Parallel is how many members a call asks at the same time. Default 8.
	Parallel int
	// MaxInFlightPerTenant is the most records of one member that readers of this set have claimed and
	// not settled, over all groups, so that one tenant does not fill the workers of this process. A
	// record counts until it is settled or its lease ends. Other processes count for themselves.
	// Default 0: no limit.
	MaxInFlightPerTenant int
	// MaxIdle is the longest until a claim looks again at a member that had nothing, in sets of
	// more than Parallel members. Wake-ups and appends in this process shorten it. It is also how
	// often the set asks which members are at rest (roles.Idle). Default 30 s.
	MaxIdle time.Duration
	// WithoutWake has no member listen for wake-ups, which takes a connection for each pool on
	// PostgreSQL, and for each client on MongoDB. Appends of this process still wake its readers. Default false.
	WithoutWake bool
	// MaxConnections is the most connections that the stores which the set opens by URL have together, to
	// PostgreSQL and SQL Server, whatever their pools allow: those that listen, those that calls and
	// transactions use, and idle ones. At most half of them listen for the wake-ups of PostgreSQL: those of
	// the busiest members, as claims of this process find it. All other members are polled, after a pause
	// that grows to MaxIdle. Where all are in use, a call waits for half of CallTimeout, and then fails with
	// a *storekit.ConnectionBudgetError. A transaction that is open takes one, and connections that listen
	// serve no call, so it must be more than twice the transactions that are open at a time, or more than
	// these with WithoutWake. Not counted are SQLite, which has no server, MongoDB, whose clients keep
	// connections for themselves, and stores and pools that you have opened. Default 0: no limit, each pool has its
	// own size, and each PostgreSQL database has one connection more, which listens.
	MaxConnections int
	// WithoutRest has the set not ask which members are at rest. Then each round of upkeep and each
	// registration goes to every member, so that GroupInfo.SeenAt is always right. Idle members cost
	// more: see docs/tenants.md. Default false.
	WithoutRest bool
	// CallTimeout bounds a claim, an extension of leases, and a call that settles, in one member, and six times
	// of it bound other calls, and the opening of a store with its schema and registrations, which has a minute at
	// least. [Set.Ensure] and Transact have no bound, but the contexts of their functions end when
	// the member is found to hang, which the set asks each CallTimeout. So a member that hangs holds up the
	// others for no longer. It is then asked in the background, and until it answers all calls fail in it at
	// once, with storekit.ErrStoreAway. A claim waits for a member for a tenth of CallTimeout at most, and for a hundredth if it
	// has records of others, but for 200 ms and 20 ms at least: a later claim hands out what the member answers. Claims do not
	// wait for a member whose last claim took longer than a tenth of CallTimeout. Default 10 s.
	CallTimeout time.Duration

	// KeyOf returns the key of the tenant that serves a message's tenant id, where several tenant
	// ids share a database. Default: the tenant id is the key.
	KeyOf func(tenantID string) string
	// DefaultTenant is the key for calls that name no tenant. Default "": they are refused with
	// ErrNoTenant.
	DefaultTenant string

	// OnError is called with each error of a member or of the discovery that no caller gets. It
	// may be called concurrently. Default nil.
	OnError func(err error)
}

const (
	// firstIdle is the pause after the first look that found nothing; it doubles.
	firstIdle = 500 * time.Millisecond
	// firstTrouble and maxTrouble bound the pause after a call of a member that failed.
	firstTrouble = 100 * time.Millisecond
	maxTrouble   = 30 * time.Second
	// discoveryTimeout bounds a question to the discovery. openTimeout is the least bound of the opening of a store, which
	// is a long call.
	discoveryTimeout = 30 * time.Second
	openTimeout      = time.Minute
	// maxAsked is the most members that one claim asks.
	maxAsked = 64
)

func (c *Config) setDefaults(logger watermill.LoggerAdapter) {
	set := func(d *time.Duration, usual time.Duration) {
		if *d == 0 {
			*d = usual
		}
	}
	set(&c.Refresh, 5*time.Minute)
	set(&c.Linger, time.Minute)
	set(&c.MaxIdle, 30*time.Second)
	set(&c.CallTimeout, 10*time.Second)
	if c.Name == "" {
		c.Name = "tenants"
	}
	if c.Parallel == 0 {
		c.Parallel = 8
	}
	if c.KeyOf == nil {
		c.KeyOf = func(tenantID string) string { return tenantID }
	}
	if opener, opens := c.Discovery.(Opener); opens && c.Open == nil {
		c.Open = opener.Open
	}
	if c.Open == nil {
		c.Open = func(ctx context.Context, tenant Tenant) (outmill.Store, error) {
			return outmill.Open(ctx, tenant.URL, logger.With(watermill.LogFields{"tenant": tenant.Key}))
		}
	}
}

// Validate reports every setting that makes no sense, as outmill.ErrInvalidConfig. New calls it.
func (c Config) Validate() error {
	var errs []error
	refuse := func(bad bool, reason string, args ...any) {
		if bad {
			errs = append(errs, storekit.InvalidConfig(reason, args...))
		}
	}
	refuse(c.Discovery == nil, "tenants.Config.Discovery is nil: want tenants.Static, a tenants.Query or your own")
	refuse(c.Parallel < 0, "tenants.Config.Parallel is %d: want 1 or more", c.Parallel)
	refuse(c.MaxInFlightPerTenant < 0, "tenants.Config.MaxInFlightPerTenant is %d: want 0 for no limit, or more", c.MaxInFlightPerTenant)
	refuse(c.MaxConnections < 0, "tenants.Config.MaxConnections is %d: want 0 for no limit, or more", c.MaxConnections)
	refuse(c.MaxIdle < 0, "tenants.Config.MaxIdle is %s: want a duration above 0", c.MaxIdle)
	refuse(c.CallTimeout < 0, "tenants.Config.CallTimeout is %s: want a duration above 0", c.CallTimeout)
	return errors.Join(errs...)
}
