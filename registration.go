package outmill

import (
	"errors"
	"time"
)

// Registration makes a group a reader of topics. See [Queue].
type Registration struct {
	// Group is the group's name; "" is the default group.
	Group string
	// Topics are the topics that the group reads. A group may have several
	// registrations, one for each selection of topics: the same lists of entries
	// in the same order are the same selection.
	Topics Topics
}

// Validate reports every value that makes no sense, as ErrInvalidRecord. Stores
// call it.
func (r Registration) Validate() error {
	return errors.Join(CheckGroup(r.Group), r.Topics.Validate())
}

// GroupInfo describes a registered group.
type GroupInfo struct {
	Group string
	// Registrations are what the group reads.
	Registrations []RegistrationInfo
	// SeenAt is when the group was last registered. Subscribers and forwarders
	// register again in every janitor's round, so a time long ago means that
	// nobody reads the group any more.
	SeenAt time.Time
}

// RegistrationInfo describes one registration of a group.
type RegistrationInfo struct {
	Topics Topics
	// SeenAt is when the group last registered for this selection.
	SeenAt time.Time
}
