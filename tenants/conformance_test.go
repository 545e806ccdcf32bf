package tenants_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/memstore"
	"github.com/outmill/outmill/tenants"
)

func TestMain(m *testing.M) {
	testenv.ManyAtATime()
	goleak.VerifyTestMain(m)
}

const noSchema = "a set has no statements of its own"

// cutShort is why sentences about a drop that is cut short are those of the members' stores.
const cutShort = "a set calls its members with contexts of its own, so the sentence cannot end one between two steps of a drop"

const obx109 = "schema: OBX-109 without a schema every call is ErrSchemaMissing and creates none"

// unsupported is what a store made of several has not.
var unsupported = map[string]string{
	obx109: "the leases of the sentence name no member, so no store is asked",

	"giving back: an interrupted drop goes on as it began, although another group has registered since": cutShort,
	"giving back: a group that registers after an interrupted drop keeps what it still has":             cutShort,
	"giving back: the end of registrations leaves a drop that was interrupted alone":                    cutShort,

	"schema: Statements returns the schema as text, always the same":                      noSchema,
	"schema: StatementsFrom returns the end of Statements, less for each later version":   noSchema,
	"schema: StatementsFrom refuses a version that is negative or newer than the program": noSchema,
}

// TestConformance runs the queue's suite over sets. All records are of one member, because the
// suite names no tenants and appends to several topics in one call.
func TestConformance(t *testing.T) {
	t.Parallel()
	conform(t, []string{"a", "b"})
}

func TestConformanceOfOne_Variant(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "the queue's suite over a set of one member")
	conform(t, []string{"a"})
}

// TestConformanceOfTwelve_Variant has more members than a claim asks at a time.
func TestConformanceOfTwelve_Variant(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "the queue's suite over a set of twelve members, after one and two")
	conform(t, []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"})
}

func conform(t *testing.T, keys []string) {
	t.Helper()
	unsupported := maps.Clone(unsupported)
	if len(keys) > 1 {
		const perMember = "a registration counts once for each member"
		unsupported["registrations"] = perMember
		unsupported["clock: registrations end by the database's clock"] = perMember
		unsupported["model"] = "a suspect that is given back, because others were claimed with it, has one more claim than in the model"
	}
	storetest.Run(t, storetest.Engine{
		New: func(t *testing.T, options storetest.Options) storetest.Harness {
			databases := map[string]*memstore.Database{}
			for _, key := range keys {
				databases[key] = memstore.NewDatabase()
			}
			s := openSet(t, databases, memstore.Options{Retain: options.Retain, DedupWindow: options.DedupWindow})
			if !options.NoSchema {
				require.NoError(t, s.Ensure(t.Context()))
			}
			return harness{t, s}
		},
		Unsupported: unsupported,
	})
}

// harness is a set for one test.
type harness struct {
	t   *testing.T
	set *opened
}

func (h harness) Store() outmill.Store { return h.set }

func (h harness) Reopen() outmill.Store { return openSet(h.t, h.set.databases, h.set.options) }

func (h harness) Elapse(_ outmill.Store, d time.Duration) {
	for _, db := range h.set.databases {
		db.Elapse(d)
	}
}

func (h harness) Begin(store outmill.Store) (ctx context.Context, commit, rollback func() error) {
	s := store.(*opened)
	tx := s.databases[s.last()].Begin()
	member, err := s.Outbox(s.last())
	require.NoError(h.t, err)
	return member.(*memstore.Store).WithTx(h.t.Context(), tx), tx.Commit, tx.Rollback
}

// opened is a set with what it was made of. All records go to the last of its members.
type opened struct {
	*tenants.Set
	databases map[string]*memstore.Database
	options   memstore.Options
}

func (s *opened) last() string { return lastOf(s.databases) }

func lastOf(databases map[string]*memstore.Database) (last string) {
	for key := range databases {
		last = max(last, key)
	}
	return last
}

func openSet(t *testing.T, databases map[string]*memstore.Database, options memstore.Options) *opened {
	var list tenants.Static
	var stores []*memstore.Store
	for key, db := range databases {
		store := memstore.New(db, options)
		stores = append(stores, store)
		list = append(list, tenants.Tenant{Key: key, Store: store})
	}
	last := lastOf(databases)
	set, err := tenants.New(t.Context(), tenants.Config{
		Discovery: list, DefaultTenant: last, KeyOf: func(string) string { return last },
		// The suite moves the clocks of databases, which nobody tells the set, and expects a claim
		// to find at once what another process has appended. It also expects every registration and
		// each call of upkeep to reach the store.
		MaxIdle: 1, WithoutRest: true, CallTimeout: patient,
	}, watermill.NopLogger{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, set.Close())
		for _, s := range stores {
			require.NoError(t, s.Close())
		}
	})
	return &opened{set, databases, options}
}
