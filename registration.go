package outmill

import (
	"time"
)

// Registration makes a group a reader of topics. See [Queue].
type Registration struct {
	// Group is the group's name; "" is DefaultGroup.
	Group string
	// Topics are the topics that the group reads. A group may have several registrations, one
	// for each selection of topics. Two selections are the same if they have the same lists of
	// entries in the same order.
	Topics Topics
	// Worker names the process or instance that reads: free text of up to 255 characters,
	// without leading or trailing blanks. "" is no name. [Inspector].Groups returns it.
	Worker string
	// TTL ends the registration after this time by the database's clock, unless the group
	// registers for the selection again. 0, the default, means that it never ends. See
	// [Janitor].ExpireRegistrations.
	TTL time.Duration
	// Hold registers the group for what is appended from now on, but leaves what waits for a first
	// group where it is, until the group registers for the same selection without Hold. So a
	// worker that does not know yet whether it can pass on anything takes nothing. Until then
	// another group that registers for a topic gets what waits there. The database keeps that the
	// registration holds, so neither a claim nor another call with Hold takes the records. Hold
	// has no effect on a registration that exists without it. A worker that holds claims nothing of
	// these topics, so that what waited goes out first.
	Hold bool
	// Problems says why the worker cannot pass on records now, by topic; the topic "" stands for
	// all topics. A forwarder reports the broker that accepts nothing, and the topics that it
	// holds. It and a subscriber also report records that come again and again without an attempt;
	// such a text begins with storekit.RepeatedProblem. The store keeps the texts with the worker's name until that name registers the group
	// again. Without Worker it keeps none. At most 20 topics, and 500 characters for each text.
	Problems map[string]string
	// Failing are the calls that the worker repeats by itself and that fail now: those of its claims,
	// acks, leases, registrations and upkeep, and of the connection by which its store listens. The
	// store keeps them like Problems. At most 20, and 500 characters for each text.
	Failing []FailingCall
	// Handling are the handlers that have run for long, the longest first. Subscribers and forwarders
	// report those that have run for twice their lease. The store keeps them like Problems. At most 20.
	Handling []Handling
	// Reads says in which order and by which policy the worker reads topics of the group, so that Doctor and
	// "outmill groups list" can name workers that differ. Subscribers and forwarders report all readers
	// of their name in the process. The store keeps it like Problems. At most 50 entries of topics in all.
	Reads []Reading
	// Stopped says that the worker has stopped and reads nothing any more. The store then only notes
	// that with the worker's name, if it has that name: it makes, renews and ends no registration.
	// Subscribers and forwarders report it when the last one of their name in the process stops. It
	// needs Worker.
	Stopped bool
}

// GroupInfo describes a group.
type GroupInfo struct {
	Group string
	// Registrations are the group's selections of topics. The list is empty if all
	// registrations have ended and the group still has records that are dead, processed or
	// leased.
	Registrations []RegistrationInfo
	// SeenAt is when the group last registered; zero if no registration is left. Subscribers
	// and forwarders register again in every janitor round, so a time long ago means that no
	// worker reads the group any more.
	SeenAt time.Time
	// EndedAt is when the janitor removed the last registration; zero while a registration
	// exists.
	EndedAt time.Time
	// Workers are the names that registered the group, the last seen first. The next
	// registration removes the names that were not seen for 24 hours, and the longest unseen
	// names above 1,000.
	Workers []WorkerInfo
	// Pauses has a line for each pause that may stop records of the group: what is paused, who
	// paused it, when, and why (roles.PauseInfo). It is empty if the store lacks the role
	// roles.Pauses, which pauses, resumes and lists the pauses.
	Pauses []string
}

// RegistrationInfo describes one registration of a group.
type RegistrationInfo struct {
	Topics Topics
	// SeenAt is when the group last registered for this selection.
	SeenAt time.Time
	// ExpiresAt is when the registration ends; zero: never.
	ExpiresAt time.Time
	// Holding says that the group has not taken what waits for a first group. See
	// Registration.Hold.
	Holding bool
}

// WorkerInfo is a process or instance that registered a group.
type WorkerInfo struct {
	Name string
	// SeenAt is when it last registered the group.
	SeenAt time.Time
	// Problems says why the worker could not pass on records at SeenAt, by topic; "" stands for
	// all topics. It is nil if there was no problem. See Registration.Problems.
	Problems map[string]string
	// Failing are the calls that failed at SeenAt; nil is none. See Registration.Failing.
	Failing []FailingCall
	// Handling are the handlers that had run for long at SeenAt; nil is none. See Registration.Handling.
	Handling []Handling
	// Reads says how the worker reads, as it reported at SeenAt; nil if it did not say. See Registration.Reads.
	Reads []Reading
	// Stopped says that the worker stopped at SeenAt. One that was killed is not stopped: its SeenAt is
	// long ago.
	Stopped bool
}

// Dropped counts the records of a group that was dropped.
type Dropped struct {
	// GivenBack is the number of records that wait for the first group that registers for their
	// topic.
	GivenBack int
	// Deleted is the number of records that are gone: the processed and the dead ones, and those
	// of topics that another group reads.
	Deleted int
}
