package outmill

import (
	"context"
	"time"
)

// Writer appends records.
type Writer interface {
	// Append writes all the records or none. With a context that carries a
	// transaction of this store (the store's WithTx), it takes part in that
	// transaction and neither commits nor rolls back, nor uses a second
	// connection; otherwise it runs a transaction of its own. An error of the
	// engine's, such as a deadlock, may end the caller's transaction: PostgreSQL then
	// refuses its further statements, SQL Server rolls it back (XACT_ABORT). Append
	// returns ErrForeignTx where the context carries transactions of other stores
	// only, and ErrInvalidRecord, with nothing sent, where a record is invalid.
	//
	// Each record reaches every group that is registered for its topic, decided
	// in the same transaction. Where no group is, it waits for the first that
	// registers. A record with a DedupKey that was seen within the store's
	// window is left out and marked Duplicate; this never aborts the caller's
	// transaction.
	//
	// Append fills ID and MessageID where they are zero, and sets Duplicate. An ID
	// that exists already is an error. Where a message goes to several groups, the
	// first by name gets the record's ID and the others new ones. What is for a
	// store to set is not read. Append does not retain the records; to append
	// none is no error.
	//
	// Two open transactions with the same dedup key may get the engine's retryable
	// error; a duplicate does not renew the window, and the window's end counts by
	// the database's clock.
	Append(ctx context.Context, records ...*Record) error

	// TxOf returns the transaction of this store that ctx carries: a comparable
	// value that is equal for equal transactions, nil where ctx carries none,
	// ErrForeignTx where it carries transactions of other stores only.
	TxOf(ctx context.Context) (any, error)

	// Name identifies the store in logs, metrics and deliveries.
	Name() string
}

// Order is how a claim treats the order of records.
type Order int

const (
	// OrderNone hands out the oldest due first within a topic. It promises no
	// order, and never waits for another worker's handling.
	OrderNone Order = iota
	// OrderKey hands out the records of one topic and key one after the other, in
	// the order in which they were appended, among writers that the application
	// itself serialises. Records without a key are not ordered. All readers of a group
	// must agree on the order and the policy, else none is promised.
	//
	// A key is held while another owner has a lease on a record of it that has not
	// ended. The owner itself may claim more of the key, and keeps the order
	// itself. A record that was never claimed and is not due yet holds nothing:
	// its place in the order begins when it is due. An expired record holds
	// nothing. No bound of a claim makes it pass over a record and hand out a
	// later one of its key.
	OrderKey
	// OrderTopic hands out all records of a topic one after the other, as if they
	// had one key.
	OrderTopic
)

func (o Order) String() string {
	switch o {
	case OrderNone:
		return "none"
	case OrderKey:
		return "key"
	case OrderTopic:
		return "topic"
	}
	return "invalid"
}

// KeyPolicy is what a record that was claimed before and is not due (it waits
// for a retry, or was snoozed), or that went dead, means for the later records
// of its key, for ordered claims. A leased record holds its key under each.
type KeyPolicy int

const (
	// KeyBlock holds the key until the record's retry. A record that goes dead
	// lets the key go on.
	KeyBlock KeyPolicy = iota
	// KeySkip lets later records of the key pass.
	KeySkip
	// KeyPark blocks while the record is retried; when it fails for good, the later
	// records of its key that are pending go dead with it, and so does every
	// further one of the key that an ordered claim with this policy meets, until
	// the last parked record of the key is requeued or deleted. It is for
	// OrderKey, and parks nothing behind a record without a key. Records that
	// expire park nothing. Where thousands are behind, a store makes some of them
	// dead at once, and the others as claims with this policy come to them.
	KeyPark
)

func (p KeyPolicy) String() string {
	switch p {
	case KeyBlock:
		return "block"
	case KeySkip:
		return "skip"
	case KeyPark:
		return "park"
	}
	return "invalid"
}

// ClaimRequest says what to claim.
type ClaimRequest struct {
	Owner OwnerToken
	// Group is the group that reads; "" is DefaultGroup.
	Group string
	// Topics to claim from. A selection of many topics is served in turn, so
	// that a topic with a large backlog does not starve another one.
	Topics Topics
	// Limit is the most records to hand out, at least 1.
	Limit int
	// MaxBytes bounds the sum of the records' sizes; at least one record is
	// handed out whatever its size. 0 is no bound.
	MaxBytes int
	// Lease is how long the records are held, more than 0.
	Lease time.Duration
	Order Order
	// KeyPolicy is for ordered claims.
	KeyPolicy KeyPolicy
}

// Settlement says what becomes of a leased record. Each call reads the fields that it
// names, and ignores the others.
type Settlement struct {
	Lease Lease
	// Delay until the record is due again, for Abandon and Snooze; negative is 0.
	Delay time.Duration
	// Err becomes the record's LastError, for Abandon and Fail. A store keeps the first
	// 4,096 bytes.
	Err string
	// Park takes the later records of the same topic and key along, for Fail. See
	// KeyPark.
	Park bool
}

// Queue hands records out under leases, and takes back the outcome of their handling.
//
// The clock of the database decides about due times, leases and expiry, never the
// caller's.
//
// Ack, Abandon, Fail, Release, Snooze and Extend act on valid leases. A lease is valid
// while its record is leased by that owner under that claim number. It stays valid after
// its end, until the record is reaped or claimed again; an ordered claim also ends the
// expired leases of the keys that it hands out. A lease that is not valid, and an id that
// does not exist, are ignored without an error. The number of round trips of a call does
// not grow with the number of leases, except on SQL Server, which needs one for each 900
// leases, and on MongoDB for steps of joins.
//
// A record whose lease has expired SuspectExpiries times since it was last abandoned,
// snoozed or requeued is a suspect: it may kill its worker. A claim that meets a suspect
// first hands it out alone, and a claim that meets one later ends before it. From then on
// each expiry counts as an attempt. The store counts; the reader makes the record dead
// after the last attempt. Because a suspect is alone, records that were merely prefetched
// with it do not use up their attempts. The reader therefore settles or releases all that
// it holds before it starts a suspect, and claims nothing until the suspect is settled. It
// starts no handling after the end of a lease, by its own monotonic clock from before the
// claim, and no record that it still handles under an older lease.
type Queue interface {
	// RegisterGroup makes each registration's group a reader of its topics: from
	// then on each appended message of these reaches the group, once. Records that waited for
	// a reader go to the group that registers first, in their order, and ordered
	// claims see none of the topic before all have. It is idempotent; each call
	// refreshes the times at which the group and the worker were last seen, and
	// adopts what waits for its topics. Of messages whose transactions are open
	// during the first call, each reaches the groups that were there before, or
	// the new one too. A call that fails may have made some of the registrations,
	// and may be repeated.
	//
	// A call with a TTL moves the end of that group's registration for that
	// selection to now + TTL, whether that is later or earlier than before. A call
	// without one makes the registration permanent, and so it stays until
	// DropGroup, whatever TTL later calls have: a process that sets no TTL keeps
	// its registration, although another process of the group sets one.
	RegisterGroup(ctx context.Context, regs ...Registration) error

	// Claim leases up to Limit records of the group that are due: pending, or
	// leased under a lease that ended; not expired. A lease that ended is counted
	// as ReapExpired would. It is atomic: no record has two owners. Where nothing
	// is due it returns no records and no error. Claim numbers never go back.
	//
	// Where thousands of records become due at once, a claim in order may hand out what
	// it would have at an earlier moment, at which fewer of them were due. What became
	// due, or was appended, after that moment comes with a later claim.
	//
	// After an error nobody knows whether more was leased than what came with it, if
	// anything did: the answer may be lost. Records of those keys come again when
	// the leases end, and until then an ordered claim hands out later ones of them to
	// their holder, so claim with another owner from then on.
	Claim(ctx context.Context, req ClaimRequest) ([]*Record, error)

	// Extend sets the end of the leases to now + lease and returns those that
	// still stand.
	Extend(ctx context.Context, lease time.Duration, leases []Lease) ([]Lease, error)

	// Ack makes the records processed: deleted, or kept with the time and by where
	// the store retains. by names the worker for people, such as host:pid, in up to
	// 255 characters (ErrInvalidRecord); "" is no name.
	Ack(ctx context.Context, by string, leases []Lease) error

	// Abandon makes the records due again after their delay, and counts the
	// attempt.
	Abandon(ctx context.Context, settlements []Settlement) error

	// Fail makes the records dead. Attempts stays as it is.
	Fail(ctx context.Context, settlements []Settlement) error

	// Release gives the records back as if they had not been claimed, save that
	// the claim stays counted: due as before, expiries and last error kept.
	Release(ctx context.Context, leases []Lease) error

	// Snooze makes the records due again after their delay; the attempt is not
	// counted.
	Snooze(ctx context.Context, settlements []Settlement) error

	// ReapExpired makes up to limit records whose lease has ended pending again,
	// counts the expiry, and returns how many there were.
	ReapExpired(ctx context.Context, limit int) (int, error)

	// Name identifies the store in logs, metrics and deliveries.
	Name() string
}

// TopicStats counts the records of one topic and group by status. A count
// that equals the limit of the request means "that many or more": a store
// counts no further, so that the cost does not grow with the backlog.
type TopicStats struct {
	// Store names the store that was counted, where a store is made of several
	// (package tenants); "" elsewhere.
	Store string
	// Group is the group. "" counts the records that wait for the first group that
	// registers for their topic.
	Group string
	Topic string

	// Pending counts all pending records, those not yet due too.
	Pending, Leased, Processed, Dead int
	// OldestDue is when the record that has been due longest became due; zero
	// where nothing is due.
	OldestDue time.Time
}

// ListQuery selects records to look at.
type ListQuery struct {
	// Group limits the list to one group; "" is all of them, and the records that wait
	// for one.
	Group string
	// Topic limits the list to one topic; "" is all of them.
	Topic string
	// Status limits the list; "" is all of them.
	Status Status
	// After continues a list behind that id, whether or not the record is still
	// there; zero is the beginning.
	After WorkItemID
	// Limit is the most records to return; 0 is 100, negative is refused.
	Limit int
}

// Inspector is what operators need: CLI, dashboard, metrics.
type Inspector interface {
	// Stats counts the records of each group and topic up to limit per count;
	// 0 is 10,000.
	Stats(ctx context.Context, limit int) ([]TopicStats, error)
	// Groups lists the groups that have a registration, and those whose
	// registrations have ended but that still have records, sorted by name.
	Groups(ctx context.Context) ([]GroupInfo, error)
	// DropGroup removes the group's registrations and its records, whatever
	// their status, and returns how many records those were. "" is DefaultGroup.
	DropGroup(ctx context.Context, group string) (int, error)
	// List returns records in the order of their ids, which is about the order in
	// which they were appended.
	List(ctx context.Context, query ListQuery) ([]*Record, error)
	// Get returns one record, ErrNotFound where there is none.
	Get(ctx context.Context, id WorkItemID) (*Record, error)
	// Requeue makes dead records pending and due at once, and returns how many.
	// Attempts and Expiries begin at 0, ExpiresAt is cleared, LastError kept.
	// Records that are not dead are passed over. A parked record brings those
	// parked with its key along.
	Requeue(ctx context.Context, ids ...WorkItemID) (int, error)
	// Delete removes records, whatever their status, and returns how many.
	Delete(ctx context.Context, ids ...WorkItemID) (int, error)
}

// Janitor keeps a store small. Each call but Maintain does at most limit records of
// work and returns how many it did; fewer than limit means that it is done, or that
// another janitor is at the rest.
type Janitor interface {
	// Maintain does a bounded part of the engine's own housekeeping, such as to empty
	// a segment of PostgreSQL's log, and returns whether more is left. It changes
	// nothing that a reader sees: no record becomes due, dead or deleted. A store
	// without such work returns false.
	//
	// It is safe in every process, and each is to call it every few seconds: of those
	// that share a database one works at a time, and the store decides how often. Any
	// other call returns false at once. Append, Claim and the settling of leases do
	// not wait for it for longer than some milliseconds. Where more is left, pause
	// before the next call, because its work takes part of the database's power; what
	// it has done stays done. What somebody else keeps it from, such as a table that
	// is being dumped, is left for a later call and is no error.
	Maintain(ctx context.Context) (more bool, err error)
	// DeleteProcessed deletes processed records older than the retention.
	DeleteProcessed(ctx context.Context, limit int) (int, error)
	// ExpireDue makes records dead whose expiry has passed and that nobody holds,
	// those that wait for a group too. LastError then says "expired".
	ExpireDue(ctx context.Context, limit int) (int, error)
	// DeleteDedupKeys deletes dedup keys whose window has ended.
	DeleteDedupKeys(ctx context.Context, limit int) (int, error)
	// ExpireRegistrations removes registrations whose end has passed (see
	// Registration.TTL), and deletes the undelivered records of their groups: those
	// of topics that no registration of the group selects any more and that are
	// pending, or leased under a lease that has ended. It does at most limit of
	// each, and returns how many it did of each.
	//
	// Dead records stay for the operator, processed ones for their retention. A
	// record whose lease has not ended stays with its owner; if it comes back
	// undelivered, a later round deletes it. So does a later round with what a
	// transaction appends that was open when the registration ended, if it commits
	// within 24 hours, and with a dead record that is requeued while nobody reads
	// its topic: register the group before you requeue.
	//
	// Between the end and the call an append still reaches the group. Afterwards it
	// does not: a message of a topic that no group reads any more waits for the
	// first group that registers. A group that registers again before its
	// registration is removed loses nothing; one that registers again later keeps
	// what is not deleted yet. Registrations without a TTL never end.
	ExpireRegistrations(ctx context.Context, limit int) (registrations, records int, err error)
}

// Schema manages the tables of a store.
type Schema interface {
	// Ensure creates the schema or brings it up to date. It is idempotent, and
	// safe when many processes start at once. ErrSchemaNewer where the schema
	// was made by a newer version of Outmill.
	Ensure(ctx context.Context) error
	// Statements returns the whole schema as plain SQL (or the engine's own
	// language), for the user's own migration tool.
	Statements() []string
	// StatementsFrom returns what brings a schema of that version to the newest one,
	// which is the end of what Statements returns. 0 is an empty database, so it
	// returns all; of the newest version nothing is left to do. ErrSchemaNewer where
	// this program does not know the version yet, ErrInvalidConfig where it is negative.
	StatementsFrom(version int) ([]string, error)
}

// Store is one outbox in one database, in all its roles. The roles are small, so that a
// publisher does not see the methods of a worker. A store also has the roles of package
// storekit that its engine supports.
//
// These rules hold for each method of each role:
//
//   - Methods may be called concurrently.
//   - An error does not mean that nothing was written, because the answer to a commit can
//     be lost. Every call but Append may be repeated.
//   - A call for many records is atomic for each record, not for all of them: a store may
//     carry it out in several steps. Append alone is atomic as a whole.
//   - When the context ends, the method returns ctx.Err(), wrapped.
//   - In a transaction of its own, a store repeats an attempt that failed for a reason
//     that passes: a deadlock, a serialization failure, a busy database. In the caller's
//     transaction it returns the error of the driver, wrapped.
//   - Methods other than Append and TxOf ignore a transaction in the context.
//   - After Close, methods return ErrClosed.
//   - No method does unbounded work in one transaction. DropGroup, Requeue, and
//     RegisterGroup, which adopts waiting records, may use several.
type Store interface {
	Writer
	Queue
	Inspector
	Janitor
	Schema
	// Close ends what the store itself started and opened. It does not close a
	// handle that it was given.
	Close() error
}
