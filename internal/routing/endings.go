package routing

import (
	"context"
	"time"
)

const (
	// WorkersFor is how long a worker's name is kept.
	WorkersFor = 24 * time.Hour
	// MaxWorkers is how many a group has at most.
	MaxWorkers = 1000
	// LookAgain is how often a group is looked at of which a registration has
	// ended.
	LookAgain = time.Hour
	// NoteFor is for how long it is looked at, at least: a transaction that was
	// open when the registration ended may append to the group later.
	NoteFor = 24 * time.Hour
	// groupsAtOnce is how many of these groups a call looks at.
	groupsAtOnce = 1000
)

// Endings are what a store does to end registrations. Each step is done by
// itself, and may be repeated: the groups of registrations that were removed are
// noted in the same transaction, and the note stays until nothing is left to
// delete.
type Endings struct {
	// End removes up to limit registrations whose end has passed, notes their
	// groups, and returns how many there were.
	End func(ctx context.Context, limit int) (int, error)
	// Noted returns up to limit noted groups that are to be looked at now.
	Noted func(ctx context.Context, limit int) ([]string, error)
	// Sweep deletes up to limit undelivered records of the group whose topics no
	// registration of it selects, and returns how many. Where it deletes fewer it
	// also notes when to look again.
	Sweep func(ctx context.Context, group string, limit int) (int, error)
}

// Expire is ExpireRegistrations of outmill.Janitor.
func (e Endings) Expire(ctx context.Context, limit int) (registrations, records int, err error) {
	if registrations, err = e.End(ctx, limit); err != nil {
		return registrations, 0, err
	}
	groups, err := e.Noted(ctx, groupsAtOnce)
	if err != nil {
		return registrations, 0, err
	}
	for _, group := range groups {
		if records == limit {
			break
		}
		n, err := e.Sweep(ctx, group, limit-records)
		if records += n; err != nil {
			return registrations, records, err
		}
	}
	return registrations, records, nil
}

// Unread returns those of the topics that the group does not read.
func (t *Table) Unread(group string, topics []string) []string {
	var unread []string
	for _, topic := range topics {
		if !t.reads(group, topic) {
			unread = append(unread, topic)
		}
	}
	return unread
}

func (t *Table) reads(group, topic string) bool {
	for _, r := range t.Registrations {
		if r.Group == group && r.Topics.Match(topic) {
			return true
		}
	}
	return false
}

// Has tells whether the group has a registration.
func (t *Table) Has(group string) bool {
	for _, r := range t.Registrations {
		if r.Group == group {
			return true
		}
	}
	return false
}
