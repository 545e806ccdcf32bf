package roles

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// MaxPauses is the largest number of pauses of a store. It is bounded because each claim
// compares records with all of them.
const MaxPauses = 1000

// ErrTooManyPauses says that a store has [MaxPauses] pauses.
var ErrTooManyPauses = errors.New("outmill: the store has 1,000 pauses, and no room for another one: resume some of them, " +
	"or pause a group, a topic or a tenant instead of many keys")

// Pauses stops and continues deliveries at run time. It is a role of a store, which
// outmill.As finds.
//
// The pauses are in the store, so they hold for all processes and outlive them. A pause may
// name a group, topic, key or tenant that does not exist yet, and stays until Resume, even
// if its group is dropped. Pauses change no record: what is paused keeps its order, its
// attempts and its due time. Appends continue. So does the janitor: a record that expires
// while it is paused goes dead.
//
// A paused record is not handed out: no claim that begins after the commit of a pause
// returns it. A handler that is running continues, keeps its lease, and may settle its
// record. A worker releases the paused records that it has claimed and not started, after
// its next call of the store (see LastPauses).
//
//   - A pause of a group or topic stops all its records.
//   - A claim with OrderNone skips paused records and returns the others.
//   - A claim with OrderKey treats a key as held, as if another owner had a lease on it, from
//     its first paused record on. So a paused key returns nothing, and a record of a paused
//     tenant holds the later records of its key, even those of other tenants. Keys without a
//     paused record continue.
//   - A claim with OrderTopic treats the topic as one key, so a paused record holds all later
//     records of its topic.
//
// Resume continues where the pause stopped: a claim in order returns the records of each key in
// their order. Claims bring back what they had set aside, some thousand records each, so a
// resume takes no longer when a million records were paused.
//
// For [outmill.Inspector], paused records are pending and not due: TopicStats.Pending counts
// them, and OldestDue leaves them out. OldestDue looks at a bounded number of records, so it may
// be zero while many paused records that no claim has met yet precede the others. GroupInfo
// names the pauses that concern a group.
//
// Like other methods, these ignore a transaction in the context.
type Pauses interface {
	// Pause stops the deliveries of the scope. by names who pauses, such as "ann@example.com"
	// or "deploy 42", in up to 255 characters; it must not be empty. reason is free text of up
	// to 1,000 characters, and may be empty. A second pause of the same scope keeps the time of
	// the first and replaces by and reason, so the call may be repeated.
	//
	// Overlapping pauses are independent: a record is paused as long as one of them covers it.
	//
	// Pause returns an outmill.ErrInvalidConfig that names the field of an invalid argument, and
	// ErrTooManyPauses if the store has [MaxPauses] pauses of other scopes.
	Pause(ctx context.Context, scope PauseScope, by, reason string) error

	// Resume ends the pause of exactly this scope, and wakes readers. It reports false if there
	// was no such pause. The pauses of other scopes stay: Resume of a group does not end the
	// pause of one of its topics.
	Resume(ctx context.Context, scope PauseScope) (bool, error)

	// Paused returns the pauses, sorted by Store, Group, Topic, Key and TenantID.
	Paused(ctx context.Context) ([]PauseInfo, error)

	// LastPauses returns the pauses as the calls of this process last read them, and makes no
	// call of the database. Claim and Extend read them in the statements that they run anyway;
	// other calls may too. The pointer stays the same as long as the pauses do, so a worker
	// compares pointers after each call. It is nil before the first of these calls.
	LastPauses() *PauseList
}

// PauseScope says what a pause stops: the records that match all fields that are set. At
// least one field must be set. Unlike in other calls, an empty Group means every group.
//
//	roles.PauseScope{Topic: "orders"}                        // a topic, for all its groups
//	roles.PauseScope{Group: "billing"}                       // a group, all its topics
//	roles.PauseScope{Group: "billing", Topic: "orders"}      // a topic, for one group
//	roles.PauseScope{Topic: "orders", Key: "customer 7"}     // a key of a topic
//	roles.PauseScope{TenantID: "acme"}                       // a tenant, everywhere
type PauseScope struct {
	// Group is the name of a group; outmill.DefaultGroup ("default") for readers that name
	// none. "" is every group.
	Group string
	// Topic is the exact name of a topic, not a pattern. "" is every topic.
	Topic string
	// Key is a key of Topic, which must be set. "" is every record, also those without a key.
	Key string
	// TenantID is outmill.Record.TenantID. It cannot be combined with Key, because a pause of
	// the key is enough.
	TenantID string
}

// PauseInfo is a pause of a store.
type PauseInfo struct {
	PauseScope
	// Number identifies the pause within its store, and is never used again: a later pause of
	// the same scope has a larger one.
	Number int64
	// At is the time of the first Pause of the scope, by the database's clock. By and Reason are
	// those of the last.
	At         time.Time
	By, Reason string
	// Store names the store of the pause, if the reader's store is made of several (package
	// tenants); "" otherwise.
	Store string
}

// String describes the scope, such as: group "billing", topic "orders".
func (s PauseScope) String() string {
	var parts []string
	for _, field := range []struct{ name, value string }{
		{"group", s.Group}, {"topic", s.Topic}, {"key", s.Key}, {"tenant", s.TenantID},
	} {
		if field.value != "" {
			parts = append(parts, fmt.Sprintf("%s %q", field.name, field.value))
		}
	}
	return strings.Join(parts, ", ")
}

// String describes the pause in one line, as GroupInfo.Pauses has it:
//
//	topic "orders" by ann@example.com since 2026-01-02T03:04:05Z: the warehouse is down
//
// A pause of one of several stores has ` in "store"` behind the scope.
func (p PauseInfo) String() string {
	text := p.PauseScope.String()
	if p.Store != "" {
		text += fmt.Sprintf(" in %q", p.Store)
	}
	text += fmt.Sprintf(" by %s since %s", p.By, p.At.UTC().Format(time.RFC3339))
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}
