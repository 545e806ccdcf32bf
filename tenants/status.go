package tenants

import (
	"maps"
	"slices"
	"time"
)

// State is where a member is in its life. See the package comment.
type State string

const (
	// StateOpening is a tenant whose store is not open yet.
	StateOpening State = "opening"
	// StateReady is a member that is claimed from and written to.
	StateReady State = "ready"
	// StateFailing is a member whose last claim or upkeep failed.
	StateFailing State = "failing"
	// StateDraining is a member that was removed or swapped, and has something in flight.
	StateDraining State = "draining"
)

// Status is what the set knows of its members and its discovery.
type Status struct {
	// Members are sorted by name. While a tenant is swapped, it has more than one line.
	Members   []MemberStatus
	Discovery DiscoveryStatus
	// Connections are those of the stores that the set has opened by URL.
	Connections ConnectionStatus
}

// MemberStatus describes one member.
type MemberStatus struct {
	Name  string
	State State
	// Err is why a member is failing, or could not be opened.
	Err error
	// FailingSince is when a failing member began to fail, by this process's clock.
	FailingSince time.Time
	// InFlight counts the leases that this set holds in the member.
	InFlight int
	// Resting: the member had nothing to deliver and nothing to tidy when it was last asked.
	// Readers and the upkeep leave it alone until that changes: see roles.Idle.
	Resting bool
	// Listening: a connection of Config.MaxConnections listens for commits of other processes in the
	// member. It is false where there is no such limit.
	Listening bool
}

// ConnectionStatus is the use of Config.MaxConnections.
type ConnectionStatus struct {
	// Most is the setting, 0 is no limit and nothing is counted.
	Most int
	// Open connections are in use, idle or listening. Waiting counts calls that wait for one.
	Open, Waiting int
}

// DiscoveryStatus describes the last question to the discovery.
type DiscoveryStatus struct {
	// AskedAt is when it was asked, AnsweredAt when it last gave an answer.
	AskedAt, AnsweredAt time.Time
	// Err is why it gave none; nil where it did.
	Err error
	// Tenants is how many its last answer had.
	Tenants int
}

// Status returns the states of all members. It asks no database.
func (s *Set) Status() Status {
	s.mu.RLock()
	defer s.mu.RUnlock()
	status := Status{Discovery: s.discovery, Connections: s.connections()}
	now := time.Now()
	names := map[string]struct{}{}
	for name := range s.wanted {
		names[name] = struct{}{}
	}
	for name := range s.draining {
		names[name] = struct{}{}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if err, opening := s.opening[name]; opening {
			status.Members = append(status.Members, MemberStatus{Name: name, State: StateOpening, Err: err})
		}
		if m := s.members[name]; m != nil {
			ready := m.status(now)
			ready.Listening = s.listening.isOn(m)
			status.Members = append(status.Members, ready)
		}
		for _, m := range s.draining[name] {
			status.Members = append(status.Members, m.status(now))
		}
	}
	return status
}

func (s *Set) connections() (status ConnectionStatus) {
	if s.budget != nil {
		status.Most = s.cfg.MaxConnections
		status.Open, status.Waiting = s.budget.Use()
	}
	return status
}

func (m *member) status(now time.Time) MemberStatus {
	inFlight, _ := m.inFlight(now)
	m.mu.Lock()
	defer m.mu.Unlock()
	status := MemberStatus{Name: m.name(), State: StateReady, Err: m.lastErr, FailingSince: m.failedAt, InFlight: inFlight,
		Resting: m.rest.resting}
	switch {
	case m.draining:
		status.State = StateDraining
	case m.lastErr != nil:
		status.State = StateFailing
	}
	return status
}
