package outmill

import (
	"slices"
	"strings"
)

// Topics selects topics. An entry is a pattern in which * stands for any run of characters,
// including none; a \ before * or \ makes that character literal. [Exact] makes an entry
// from a topic name.
type Topics struct {
	// Include lists the selected topics; empty selects all.
	Include []string
	// Exclude lists the topics that are not selected, even if Include selects them.
	Exclude []string
}

// Exact returns the entry that selects the one topic of that name.
func Exact(topic string) string {
	if !strings.ContainsAny(topic, `*\`) {
		return topic
	}
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`).Replace(topic)
}

// Match reports whether the topic is selected. For many topics in a row see
// [Topics.Matcher].
func (t Topics) Match(topic string) bool {
	matches := func(pattern string) bool { return matchPattern(pattern, topic) }
	if slices.ContainsFunc(t.Exclude, matches) {
		return false
	}
	return len(t.Include) == 0 || slices.ContainsFunc(t.Include, matches)
}

// Matcher returns a function equivalent to Match, whose cost does not grow with the number
// of plain names in the selection. It is safe for concurrent use.
func (t Topics) Matcher() func(topic string) bool {
	include, exclude := newEntries(t.Include), newEntries(t.Exclude)
	return func(topic string) bool {
		return !exclude.match(topic) && (len(t.Include) == 0 || include.match(topic))
	}
}

// entries are the names and the patterns of a list.
type entries struct {
	names    map[string]struct{}
	patterns []string
}

func newEntries(list []string) entries {
	e := entries{names: make(map[string]struct{}, len(list))}
	for _, pattern := range list {
		if name, plain := patternName(pattern); plain {
			e.names[name] = struct{}{}
		} else {
			e.patterns = append(e.patterns, pattern)
		}
	}
	return e
}

func (e entries) match(topic string) bool {
	if _, named := e.names[topic]; named {
		return true
	}
	return slices.ContainsFunc(e.patterns, func(pattern string) bool { return matchPattern(pattern, topic) })
}

// Names returns the topic names if the selection is a plain list of names: every entry of
// Include without a wildcard. Then a store need not search for the topics that match.
func (t Topics) Names() ([]string, bool) {
	if len(t.Include) == 0 {
		return nil, false
	}
	names := make([]string, 0, len(t.Include))
	seen := make(map[string]struct{}, len(t.Include))
	excluded := newEntries(t.Exclude)
	for _, pattern := range t.Include {
		name, ok := patternName(pattern)
		if !ok {
			return nil, false
		}
		if _, twice := seen[name]; !twice && !excluded.match(name) {
			names = append(names, name)
		}
		seen[name] = struct{}{}
	}
	return names, true
}

// matchPattern reads both strings once. After a mismatch it returns to the position behind
// the last *, which then matches one more character.
func matchPattern(pattern, s string) bool {
	p, i := 0, 0
	star, resume := -1, 0
	for i < len(s) {
		if p < len(pattern) && pattern[p] == '*' {
			star, resume = p, i
			p++
			continue
		}
		if width := literalAt(pattern, p, s[i]); width > 0 {
			p += width
			i++
			continue
		}
		if star < 0 {
			return false
		}
		resume++
		p, i = star+1, resume
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// literalAt returns the number of bytes of the pattern at p that stand for the literal byte
// c, or 0.
func literalAt(pattern string, p int, c byte) int {
	switch {
	case p >= len(pattern):
		return 0
	case pattern[p] == '\\' && p+1 < len(pattern) && (pattern[p+1] == '*' || pattern[p+1] == '\\'):
		if pattern[p+1] == c {
			return 2
		}
		return 0
	case pattern[p] == c:
		return 1
	}
	return 0
}

func patternName(pattern string) (string, bool) {
	if !strings.ContainsAny(pattern, `*\`) {
		return pattern, true
	}
	var name strings.Builder
	for p := 0; p < len(pattern); p++ {
		switch c := pattern[p]; {
		case c == '*':
			return "", false
		case c == '\\' && p+1 < len(pattern) && (pattern[p+1] == '*' || pattern[p+1] == '\\'):
			p++
			name.WriteByte(pattern[p])
		default:
			name.WriteByte(c)
		}
	}
	return name.String(), true
}
