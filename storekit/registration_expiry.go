package storekit

import (
	"context"
	"time"
)

const (
	// KeepWorkersFor is how long a store keeps the name of a worker that no longer
	// registers.
	KeepWorkersFor = 24 * time.Hour
	// MaxWorkers is how many names of workers a store keeps of a group at most.
	MaxWorkers = 1000
	// SweepEvery is how often a group is swept after a registration of it has ended.
	SweepEvery = time.Hour
	// SweepFor is for how long it is swept, at least: a transaction that was open when
	// the registration ended may append to the group later.
	SweepFor = 24 * time.Hour
	// groupsAtOnce is how many of these groups a call sweeps.
	groupsAtOnce = 1000
)

// RegistrationExpiry ends registrations: a store gives it three steps, and calls Expire in
// its ExpireRegistrations. Each step is a transaction by itself, and may be repeated: the groups of registrations that were removed are
// noted in the same transaction, and the note stays until nothing is left to
// delete.
type RegistrationExpiry struct {
	// End removes up to limit registrations whose end has passed, notes their
	// groups, and returns how many there were.
	End func(ctx context.Context, limit int) (int, error)
	// Noted returns up to limit noted groups that are to be swept now.
	Noted func(ctx context.Context, limit int) ([]string, error)
	// Sweep deletes up to limit undelivered records of the group whose topics no
	// registration of it selects, and returns how many. Where it deletes fewer it
	// also notes when to look again.
	Sweep func(ctx context.Context, group string, limit int) (int, error)
}

// Expire does what ExpireRegistrations of outmill.Janitor says.
func (e RegistrationExpiry) Expire(ctx context.Context, limit int) (registrations, records int, err error) {
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
func (t *RoutingTable) Unread(group string, topics []string) []string {
	var unread []string
	for _, topic := range topics {
		if !t.reads(group, topic) {
			unread = append(unread, topic)
		}
	}
	return unread
}

func (t *RoutingTable) reads(group, topic string) bool {
	for _, r := range t.Registrations {
		if r.Group == group && r.Topics.Match(topic) {
			return true
		}
	}
	return false
}

// Has tells whether the group has a registration.
func (t *RoutingTable) Has(group string) bool {
	for _, r := range t.Registrations {
		if r.Group == group {
			return true
		}
	}
	return false
}
