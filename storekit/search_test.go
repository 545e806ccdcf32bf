package storekit_test

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// shelf has the records of a range in the order of their ids.
type shelf []storekit.Looked

func idOf(n int) (id outmill.WorkItemID) {
	binary.BigEndian.PutUint64(id[:], uint64(n)+1)
	return id
}

// shelves deals n records out to some ranges. One in rare matches.
func shelves(random *rand.Rand, n, ranges, rare int) []shelf {
	all := make([]shelf, ranges)
	for i := range n {
		nth := random.IntN(ranges)
		if random.IntN(3) > 0 {
			nth = 0 // most are in one
		}
		all[nth] = append(all[nth], storekit.Looked{Nth: nth, ID: idOf(i), Matches: random.IntN(rare) == 0})
	}
	return all
}

func TestSearch(t *testing.T) {
	t.Parallel()

	t.Run("has each match on one page, in order, and looks at about 10,000 for each", func(t *testing.T) {
		t.Parallel()
		for seed := range uint64(20) {
			random := rand.New(rand.NewPCG(seed, 1))
			ranges := 1 + random.IntN(7)
			n, rare := random.IntN(30_000), 1+random.IntN(3)*5_000
			all := shelves(random, n, ranges, rare)
			var want []outmill.WorkItemID
			for _, s := range all {
				for _, l := range s {
					if l.Matches {
						want = append(want, l.ID)
					}
				}
			}
			slices.SortFunc(want, func(a, b outmill.WorkItemID) int { return slices.Compare(a[:], b[:]) })
			query := outmill.ListQuery{Limit: 1 + random.IntN(3000)}
			var got []outmill.WorkItemID
			examined, read := 0, 0
			for pages := 0; ; pages++ {
				require.Less(t, pages, n+2, "seed %d does not end", seed)
				ofPage := 0
				found, err := storekit.Search(query, ranges, func(open []storekit.SearchRange, each int) (looked []storekit.Looked, err error) {
					for _, r := range open {
						from, found := slices.BinarySearchFunc(all[r.Nth], r.After, func(l storekit.Looked, id outmill.WorkItemID) int {
							return slices.Compare(l.ID[:], id[:])
						})
						if found {
							from++
						}
						behind := all[r.Nth][from:]
						looked = append(looked, behind[:min(each, len(behind))]...)
					}
					ofPage += len(looked)
					return looked, nil
				})
				require.NoError(t, err)
				require.LessOrEqual(t, ofPage, roles.MaxExamined+ranges, "seed %d", seed)
				require.LessOrEqual(t, len(found.IDs), query.Limit)
				got, examined, read = append(got, found.IDs...), examined+found.Examined, read+ofPage
				if found.Done {
					break
				}
				require.Positive(t, slices.Compare(found.Next[:], query.After[:]), "seed %d does not go on", seed)
				query.After = found.Next
			}
			require.Equal(t, want, got, "seed %d", seed)
			require.Equal(t, n, examined, "seed %d", seed)
		}
	})

	t.Run("reads few where most match", func(t *testing.T) {
		t.Parallel()
		all := shelves(rand.New(rand.NewPCG(1, 1)), 20_000, 1, 1)[0]
		read := 0
		found, err := storekit.Search(outmill.ListQuery{Limit: 10}, 1, func(_ []storekit.SearchRange, each int) ([]storekit.Looked, error) {
			read += each
			return all[:each], nil
		})
		require.NoError(t, err)
		require.Len(t, found.IDs, 10)
		require.Equal(t, 10, read)
	})

	t.Run("reads not many more than it needs where one in ten matches", func(t *testing.T) {
		t.Parallel()
		for seed := range uint64(20) {
			all := shelves(rand.New(rand.NewPCG(seed, 1)), 20_000, 1, 10)[0]
			read := 0
			found, err := storekit.Search(outmill.ListQuery{Limit: 200}, 1, func(_ []storekit.SearchRange, each int) ([]storekit.Looked, error) {
				from := read
				read += each
				return all[from:read], nil
			})
			require.NoError(t, err)
			require.Len(t, found.IDs, 200)
			require.Less(t, read, 2*found.Examined, "seed %d", seed)
		}
	})

	t.Run("has a record once that is in two ranges, because it moves", func(t *testing.T) {
		t.Parallel()
		found, err := storekit.Search(outmill.ListQuery{Limit: 10}, 2, func([]storekit.SearchRange, int) ([]storekit.Looked, error) {
			return []storekit.Looked{{Nth: 0, ID: idOf(1)}, {Nth: 1, ID: idOf(1), Matches: true}}, nil
		})
		require.NoError(t, err)
		require.Equal(t, []outmill.WorkItemID{idOf(1)}, found.IDs)
		require.Equal(t, 1, found.Examined)
	})

	t.Run("of no range is done", func(t *testing.T) {
		t.Parallel()
		found, err := storekit.Search(outmill.ListQuery{Limit: 10, After: idOf(3)}, 0, nil)
		require.NoError(t, err)
		require.Equal(t, storekit.Searched{Done: true, Next: idOf(3)}, found)
	})
}

func TestCeilTime(t *testing.T) {
	t.Parallel()

	t.Run("compares as the time did with what a database keeps", func(t *testing.T) {
		t.Parallel()
		kept := time.Date(2026, 1, 2, 3, 4, 5, 6_000, time.UTC)
		require.Equal(t, kept, storekit.CeilTime(kept, time.Microsecond))
		require.Equal(t, kept.Add(time.Microsecond), storekit.CeilTime(kept.Add(1), time.Microsecond))
		require.True(t, storekit.CeilTime(time.Time{}, time.Microsecond).IsZero())
	})
}
