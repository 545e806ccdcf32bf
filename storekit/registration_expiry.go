package storekit

import (
	"context"
	"time"
)

const (
	// KeepWorkersFor is how long a store keeps the name of a worker that no longer
	// registers.
	KeepWorkersFor = 24 * time.Hour
	// MaxWorkers is the largest number of workers' names that a store keeps for a group.
	MaxWorkers = 1000
	// SweepEvery is the time between two sweeps of a group after one of its registrations has
	// ended.
	SweepEvery = time.Hour
	// SweepFor is the shortest time for which a group is swept, because a transaction that was
	// open when the registration ended may append to the group later.
	SweepFor = 24 * time.Hour
	// groupsAtOnce is the number of such groups that a call sweeps.
	groupsAtOnce = 1000
)

// RegistrationExpiry ends registrations. A store provides three steps, and calls Expire in
// its ExpireRegistrations. Each step is one transaction and may be repeated, because the
// transaction that removes registrations also notes their groups, and the note stays until
// no record is left to delete.
type RegistrationExpiry struct {
	// End removes up to limit registrations whose end has passed, notes their groups, and
	// returns the number of registrations.
	End func(ctx context.Context, limit int) (int, error)
	// Noted returns up to limit noted groups whose sweep is due.
	Noted func(ctx context.Context, limit int) ([]string, error)
	// Sweep deletes up to limit undelivered records of the group in topics that none of its
	// registrations selects, and returns their number. If it deletes fewer than limit, it also
	// stores the time of the next sweep. A record that becomes pending again (Release, Abandon,
	// Requeue) in a topic that its group does not read makes the next sweep due at once.
	Sweep func(ctx context.Context, group string, limit int) (int, error)
}

// Expire implements ExpireRegistrations of outmill.Janitor.
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

// Unread returns the topics that the group does not read.
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

// Has reports whether the group has a registration.
func (t *RoutingTable) Has(group string) bool {
	for _, r := range t.Registrations {
		if r.Group == group {
			return true
		}
	}
	return false
}
