package engine

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func idOf(n int) (id outmill.WorkItemID) {
	binary.BigEndian.PutUint64(id[:], uint64(n)+1) //nolint:gosec // it is small
	return id
}

// shelf has n records in the order of their ids. One in rare matches.
func shelf(seed uint64, n, rare int) []looked {
	random := rand.New(rand.NewPCG(seed, 1))
	all := make([]looked, n)
	for i := range all {
		all[i] = looked{idOf(i), random.IntN(rare) == 0}
	}
	return all
}

// behind are the first records behind an id.
func behind(all []looked, after outmill.WorkItemID, n int) []looked {
	from, found := slices.BinarySearchFunc(all, after, func(l looked, id outmill.WorkItemID) int { return byWorkItem(l.id, id) })
	if found {
		from++
	}
	return all[from:min(from+n, len(all))]
}

func TestSearch(t *testing.T) {
	t.Parallel()

	t.Run("has each match on one page, in order, and looks at 10,000 at most for each", func(t *testing.T) {
		t.Parallel()
		for seed := range uint64(20) {
			random := rand.New(rand.NewPCG(seed, 2))
			n := random.IntN(30_000)
			all := shelf(seed, n, 1+random.IntN(3)*5_000)
			var want, got []outmill.WorkItemID
			for _, l := range all {
				if l.matches {
					want = append(want, l.id)
				}
			}
			query := outmill.ListQuery{Limit: 1 + random.IntN(3000)}
			examined := 0
			for pages := 0; ; pages++ {
				require.Less(t, pages, n+2, "seed %d does not end", seed)
				ofPage := 0
				page, err := search(query, func(after outmill.WorkItemID, n int) ([]looked, error) {
					list := behind(all, after, n)
					ofPage += len(list)
					return list, nil
				})
				require.NoError(t, err)
				require.LessOrEqual(t, ofPage, roles.MaxExamined, "seed %d", seed)
				require.LessOrEqual(t, len(page.ids), query.Limit)
				got, examined = append(got, page.ids...), examined+page.examined
				if page.done {
					break
				}
				require.Positive(t, byWorkItem(page.next, query.After), "seed %d does not go on", seed)
				query.After = page.next
			}
			require.Equal(t, want, got, "seed %d", seed)
			require.Equal(t, n, examined, "seed %d", seed)
		}
	})

	t.Run("reads few where most match", func(t *testing.T) {
		t.Parallel()
		all, read := shelf(1, 20_000, 1), 0
		page, err := search(outmill.ListQuery{Limit: 10}, func(after outmill.WorkItemID, n int) ([]looked, error) {
			read += n
			return behind(all, after, n), nil
		})
		require.NoError(t, err)
		require.Len(t, page.ids, 10)
		require.Equal(t, 10, read)
	})

	t.Run("reads not many more than it needs where one in ten matches", func(t *testing.T) {
		t.Parallel()
		for seed := range uint64(20) {
			all, read := shelf(seed, 20_000, 10), 0
			page, err := search(outmill.ListQuery{Limit: 200}, func(after outmill.WorkItemID, n int) ([]looked, error) {
				read += n
				return behind(all, after, n), nil
			})
			require.NoError(t, err)
			require.Len(t, page.ids, 200)
			require.Less(t, read, 2*page.examined, "seed %d", seed)
		}
	})

	t.Run("of nothing is done", func(t *testing.T) {
		t.Parallel()
		page, err := search(outmill.ListQuery{Limit: 10, After: idOf(3)}, func(outmill.WorkItemID, int) ([]looked, error) { return nil, nil })
		require.NoError(t, err)
		require.Equal(t, foundPage{done: true, next: idOf(3)}, page)
	})
}
