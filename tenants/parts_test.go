package tenants_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/memstore"
	"github.com/outmill/outmill/tenants"
)

// partedMembers are open stores of package engine on which all topics are fair.
func partedMembers(t *testing.T, names []string) (list tenants.Static) {
	t.Helper()
	for _, name := range names {
		store := memstore.New(memstore.NewDatabase(), memstore.Options{Name: name, FairTopics: []string{"*"}})
		require.NoError(t, store.Ensure(t.Context()))
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		list = append(list, tenants.Tenant{Key: name, Store: store})
	}
	return list
}

// partedSet is a rig over such members.
func partedSet(t *testing.T, names []string, strategy tenants.Strategy) *rig {
	t.Helper()
	return rigOf(t, partedMembers(t, names), func(cfg *tenants.Config) { cfg.Strategy = strategy })
}

// claimParts claims with these full parts of each member.
func (r *rig) claimParts(limit, partLimit int, full func(member string) uint64) map[string]int {
	r.Helper()
	req := request(limit)
	req.PartLimit = partLimit
	req.Full = func(store, of string) uint64 {
		require.Equal(r, topic, of)
		return full(store)
	}
	found, err := r.set.Claim(r.Context(), req)
	require.NoError(r, err)
	counts := map[string]int{}
	for _, rec := range found {
		counts[rec.Store+"/"+rec.TenantID]++
	}
	return counts
}

func none(string) uint64 { return 0 }

func all(string) uint64 { return 1<<64 - 1 }

func TestSet_Full(t *testing.T) {
	t.Parallel()

	t.Run("a part is full in the member that the reader names, and not in others", func(t *testing.T) {
		t.Parallel()
		r := partedSet(t, []string{"a", "b"}, nil)
		r.appendOf("a", "x", 3)
		r.appendOf("a", "y", 3)
		r.appendOf("b", "x", 3)
		part := storekit.PartOf(topic, "x")
		require.NotEqual(t, part, storekit.PartOf(topic, "y"))
		ofA := func(member string) uint64 {
			if member == "a" {
				return 1 << part
			}
			return 0
		}
		require.Equal(t, map[string]int{"a/y": 3, "b/x": 3}, r.claimParts(100, 0, ofA))
		require.Equal(t, map[string]int{"a/x": 3}, r.claimParts(100, 0, none))
	})

	t.Run("the limit of a part holds for a claim that asks a member more than once", func(t *testing.T) {
		t.Parallel()
		for name, strategy := range map[string]tenants.Strategy{"shared": nil, "round robin": tenants.RoundRobin{}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := partedSet(t, []string{"a", "b"}, strategy)
				parts, of := map[int]bool{}, map[string]int{}
				for i := 0; len(of) < 6; i++ {
					tenant := fmt.Sprint("t", i)
					if part := storekit.PartOf(topic, tenant); !parts[part] {
						r.appendOf("a", tenant, 12)
						parts[part], of["a/"+tenant] = true, 12
					}
				}
				for round := 0; len(of) > 0; round++ {
					require.Less(t, round, 40, "not all comes: %v", of)
					got := r.claimParts(60, 5, none)
					for tenant, n := range got {
						require.LessOrEqual(t, n, 5, "%v", got)
						if of[tenant] -= n; of[tenant] == 0 {
							delete(of, tenant)
						}
					}
				}
			})
		}
	})

	t.Run("a member whose parts are full is asked again when they have room, and not only after a pause", func(t *testing.T) {
		t.Parallel()
		r := partedSet(t, manyNames(20), nil)
		r.appendOf("tenant-7", "x", 30)
		require.Equal(t, map[string]int{"tenant-7/x": 1}, r.claimParts(10, 1, none))
		for range 10 {
			for range 3 {
				require.Empty(t, r.claimParts(10, 2, all))
			}
			require.Equal(t, map[string]int{"tenant-7/x": 2}, r.claimParts(10, 2, none))
		}
	})
}
