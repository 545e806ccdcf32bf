package tenants

import "slices"

// Strategy chooses the member that a claim asks next. A claim asks one member after the other
// until one has something, each once and 64 at most. A Strategy is used by one goroutine at a
// time for each reader, and concurrently for several.
type Strategy interface {
	// Next returns one of the names, which are sorted and at least one. last is the member that
	// the reader asked before, which may have been removed since; "" is none. found is how many
	// records it gave.
	Next(names []string, last string, found int) string
}

// RoundRobin cycles through all members in the order of their names, and takes one batch of each.
type RoundRobin struct{}

// Next returns the name behind the last one.
func (RoundRobin) Next(names []string, last string, _ int) string { return behind(names, last) }

// DrainFirst takes batches of one member until it has nothing more, and then goes to the next in
// the order of their names. A member that always has something starves the others.
type DrainFirst struct{}

// Next returns the last name while that gives records, and then the one behind it.
func (DrainFirst) Next(names []string, last string, found int) string {
	if _, there := slices.BinarySearch(names, last); there && found > 0 {
		return last
	}
	return behind(names, last)
}

func behind(names []string, last string) string {
	i, there := slices.BinarySearch(names, last)
	if there {
		i++
	}
	return names[i%len(names)]
}
