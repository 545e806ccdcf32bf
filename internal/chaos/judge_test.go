//go:build unix

package chaos_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// entry is a row of the ledger.
type entry struct {
	key string
	n   int
}

// sighting is a message that a group has seen. Sightings are in their order.
type sighting struct {
	uuid string
	entry
	// by says who saw the message, and where or when, for people who analyse a failure.
	by string
}

type verdict struct {
	seen, duplicates int
	// Each text describes one message.
	lost, phantom, altered, inverted []string
}

// judge compares the messages that a group has seen with the ledger.
func judge(ledger map[string]entry, sightings []sighting) verdict {
	var v verdict
	first := map[string]bool{}
	highest := map[string]int{}
	for i, s := range sightings {
		truth, committed := ledger[s.uuid]
		switch {
		case !committed:
			v.phantom = append(v.phantom, s.String())
			continue
		case truth != s.entry:
			v.altered = append(v.altered, fmt.Sprintf("%s was %s %d", s, truth.key, truth.n))
		}
		if first[s.uuid] {
			v.duplicates++
			continue
		}
		first[s.uuid] = true
		if truth.n < highest[truth.key] {
			v.inverted = append(v.inverted, story(sightings[:i+1], truth))
		}
		highest[truth.key] = max(highest[truth.key], truth.n)
	}
	v.seen = len(first)
	for _, uuid := range slices.Sorted(maps.Keys(ledger)) {
		if !first[uuid] {
			v.lost = append(v.lost, sighting{uuid: uuid, entry: ledger[uuid]}.String())
		}
	}
	return v
}

func (s sighting) String() string { return fmt.Sprintf("%s %d %s %s", s.key, s.n, s.uuid, s.by) }

// story returns the sightings of a key near a message, up to its first sighting.
func story(sightings []sighting, of entry) string {
	const near = 5
	text := fmt.Sprintf("%s %d came late:", of.key, of.n)
	for _, s := range sightings {
		if s.key == of.key && s.n >= of.n-near && s.n <= of.n+near {
			text += "\n\t" + s.String()
		}
	}
	return text
}

func (v verdict) String() string {
	return fmt.Sprintf("delivered=%d duplicates=%d lost=%d phantom=%d altered=%d inversions=%d",
		v.seen, v.duplicates, len(v.lost), len(v.phantom), len(v.altered), len(v.inverted))
}

// blame describes the first few errors of each kind, or returns nothing if there is none.
func (v verdict) blame(group string) []string {
	var all []string
	for _, c := range []struct {
		kind  string
		cases []string
	}{{"lost", v.lost}, {"phantom", v.phantom}, {"altered", v.altered}, {"inverted", v.inverted}} {
		all = append(all, few(group+", "+c.kind, c.cases)...)
	}
	return all
}

func few(kind string, cases []string) []string {
	const enough = 10
	told := make([]string, 0, enough)
	for _, one := range cases[:min(enough, len(cases))] {
		told = append(told, kind+": "+one)
	}
	return told
}

func TestJudge(t *testing.T) {
	t.Parallel()

	t.Run("the judge sees what went wrong and allows what at least once does", func(t *testing.T) {
		t.Parallel()
		ledger := map[string]entry{"u1": {"a", 1}, "u2": {"a", 2}, "u3": {"a", 3}, "v1": {"b", 1}}
		see := func(uuids ...string) []sighting {
			var all []sighting
			for _, uuid := range uuids {
				all = append(all, sighting{uuid: uuid, entry: ledger[uuid]})
			}
			return all
		}
		for name, c := range map[string]struct {
			sightings []sighting
			want      string
		}{
			"all is well": {see("u1", "v1", "u2", "u3"), "delivered=4 duplicates=0 lost=0 phantom=0 altered=0 inversions=0"},
			"repeated and late": {see("u1", "u2", "u1", "u3", "v1", "u2", "v1"),
				"delivered=4 duplicates=3 lost=0 phantom=0 altered=0 inversions=0"},
			"lost":                   {see("u1", "u3", "v1"), "delivered=3 duplicates=0 lost=1 phantom=0 altered=0 inversions=0"},
			"phantom":                {see("u1", "u2", "x", "u3", "v1"), "delivered=4 duplicates=0 lost=0 phantom=1 altered=0 inversions=0"},
			"inverted":               {see("u1", "u3", "u2", "v1"), "delivered=4 duplicates=0 lost=0 phantom=0 altered=0 inversions=1"},
			"two behind a third one": {see("u3", "u1", "u2", "v1"), "delivered=4 duplicates=0 lost=0 phantom=0 altered=0 inversions=2"},
			"another key": {append(see("u1", "u2", "u3"), sighting{uuid: "v1", entry: entry{"a", 1}}),
				"delivered=4 duplicates=0 lost=0 phantom=0 altered=1 inversions=0"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				v := judge(ledger, c.sightings)
				require.Equal(t, c.want, v.String())
				require.Equal(t, strings.HasSuffix(c.want, "lost=0 phantom=0 altered=0 inversions=0"), len(v.blame("")) == 0)
			})
		}
	})
}
