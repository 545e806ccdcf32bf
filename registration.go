package outmill

import (
	"time"
)

// Registration makes a group a reader of topics. See [Queue].
type Registration struct {
	// Group is the group's name; "" is DefaultGroup.
	Group string
	// Topics are the topics that the group reads. A group may have several
	// registrations, one for each selection of topics: the same lists of entries
	// in the same order are the same selection.
	Topics Topics
	// Worker names the process or instance that reads: free text, up to 255
	// characters, without blanks at its ends. "" names none. [Inspector].Groups shows it.
	Worker string
	// TTL ends the registration when this much time has passed by the database's
	// clock, unless the group registers for the selection again. 0, the default:
	// it never ends. See [Janitor].ExpireRegistrations.
	TTL time.Duration
}

// GroupInfo describes a group.
type GroupInfo struct {
	Group string
	// Registrations are what the group reads. There are none where all of them
	// have ended and the group still has records: dead or processed ones, or such
	// as are leased.
	Registrations []RegistrationInfo
	// SeenAt is when the group was last registered; zero where no registration is
	// left. Subscribers and forwarders register again in every janitor's round, so
	// a time long ago means that nobody reads the group any more.
	SeenAt time.Time
	// EndedAt is when the janitor removed the last registration, where none is
	// left; zero otherwise.
	EndedAt time.Time
	// Workers are the names that registered the group, the one that was seen last
	// first. A name that was not seen for 24 hours goes with the next
	// registration, and so do those seen longest ago where there are more than
	// 1,000.
	Workers []WorkerInfo
}

// RegistrationInfo describes one registration of a group.
type RegistrationInfo struct {
	Topics Topics
	// SeenAt is when the group last registered for this selection.
	SeenAt time.Time
	// ExpiresAt is when the registration ends; zero: never.
	ExpiresAt time.Time
}

// WorkerInfo is a process or instance that registered a group.
type WorkerInfo struct {
	Name string
	// SeenAt is when it last registered the group.
	SeenAt time.Time
}
