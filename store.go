package outmill

import (
	"context"
	"time"
)

// Writer appends records.
type Writer interface {
	// Append writes all the records or none. With a context that carries a transaction of this
	// store (the store's WithTx), it takes part in that transaction and neither commits nor
	// rolls back, nor uses a second connection; otherwise it runs a transaction of its own. An
	// error of the engine, such as a deadlock, may end the caller's transaction: PostgreSQL
	// then refuses further statements, and SQL Server rolls it back (XACT_ABORT). Append
	// returns ErrForeignTx if the context carries only transactions of other stores. If a
	// record is invalid, it returns ErrInvalidRecord and sends nothing.
	//
	// Each record reaches every group that is registered for its topic; the same transaction
	// reads the registrations. If no group is registered, the record waits for the first that
	// registers. If a DedupKey was seen within the store's window, Append skips the record and
	// marks it Duplicate; this never aborts the caller's transaction.
	//
	// Append fills ID where it is zero, and MessageID with the text of ID where it is empty, the
	// same for all groups. It sets Duplicate, Group, CopiedTo and CreatedAt; the last three are
	// zero for a duplicate. An ID that exists already is an error. If a message goes to several
	// groups, the first by name gets the record's ID and the others get new ones. Append
	// ignores the fields that a store sets. It does not retain the records. Appending no
	// records is not an error. If Append fails, it changes no record.
	//
	// Two open transactions with the same dedup key may get the engine's retryable error. A
	// duplicate does not renew the window. The window ends by the database's clock.
	Append(ctx context.Context, records ...*Record) error

	// TxOf returns the transaction of this store that ctx carries. Its value is comparable,
	// and equal for equal transactions. TxOf returns nil if ctx carries no transaction, and
	// ErrForeignTx if it carries only transactions of other stores.
	TxOf(ctx context.Context) (any, error)

	// Name identifies the store in logs, metrics and deliveries.
	Name() string
}

// Order says which records a claim returns one after the other.
type Order int

const (
	// OrderNone returns the records of a topic that became due first. It promises no order,
	// and never waits for another worker's handling.
	OrderNone Order = iota
	// OrderKey returns the records of one topic and key one after the other, in the order in
	// which they were appended. Between writers this holds only if the application serialises
	// them. Records without a key are not ordered. All readers of a group must use the same
	// order and policy; otherwise no order is promised.
	//
	// A key is blocked while another owner has a lease on one of its records that has not
	// ended. The owner of the lease may claim more records of the key; it must keep their
	// order itself. A record that was never claimed and is not due yet blocks nothing: it
	// takes its place in the order when it is due. An expired record blocks nothing. A limit
	// of the claim never makes it skip a record and return a later one of the key.
	OrderKey
	// OrderTopic returns all records of a topic one after the other, as if they had one key.
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

// KeyPolicy says, for ordered claims, whether a record holds back the later records of its
// key while it waits for a retry, is snoozed, or is dead. A leased record blocks its key
// under every policy.
type KeyPolicy int

const (
	// KeyBlock blocks the key until the record's retry. When the record goes dead, the key
	// continues.
	KeyBlock KeyPolicy = iota
	// KeySkip lets later records of the key pass.
	KeySkip
	// KeyPark blocks the key while the record is retried. When the record goes dead by Fail,
	// it parks its key: the later records of the key go dead with it. The store makes a later
	// pending record dead at once, or leaves it to the next ordered claim with this policy that
	// meets it, as it leaves records that are appended later. Such a claim returns none of them.
	// Lists and counts show a record as pending until it is dead, and until then claims with
	// another policy may return it. The key is parked until the last parked record of it is
	// requeued or deleted. KeyPark is for OrderKey; a record without a key parks nothing, and
	// neither does a record that expires.
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

// ClaimRequest selects the records of a claim.
type ClaimRequest struct {
	Owner OwnerToken
	// Worker is the name of the worker for operators, such as host:pid, in up to 255 characters
	// (ErrInvalidRecord); "" is no name. The records show it while they are leased.
	Worker string
	// Group is the group that reads; "" is DefaultGroup.
	Group string
	// Topics to claim from. Claims serve the topics of a selection in turn, so that a topic
	// with a large backlog does not starve the others.
	Topics Topics
	// Limit is the largest number of records to return, at least 1.
	Limit int
	// MaxBytes limits the sum of the records' sizes, but the claim returns at least one
	// record, even a larger one. 0 is no limit.
	MaxBytes int
	// MaxRecord is the size of the largest message that the reader's publisher can take; 0 is no
	// limit. A claim makes a record dead that is certainly larger, and does not read its content:
	// payload and metadata alone are larger than MaxRecord.
	MaxRecord int
	// MaxAttempts is how many attempts a record may have had that is a suspect (Record.Suspect); 0 is
	// no limit. A claim makes it dead then, and does not read its content, because a record that
	// ends the process that reads it would do so for ever.
	MaxAttempts int
	// Lease is the duration of the leases, more than 0.
	Lease time.Duration
	Order Order
	// KeyPolicy is for ordered claims.
	KeyPolicy KeyPolicy
	// Full returns the parts of a fair topic that the claim leaves out, whatever they have: bit n for part n, as
	// storekit.PartOf numbers them. It is for stores on package engine, and has no effect in topics that are not fair. The
	// store is the member that has the records, as in Record.Store. nil leaves out none. The store may call
	// Full concurrently and more than once, until Claim returns. It must return at once, with the same result for the same
	// arguments, and must not call the store.
	Full func(store, topic string) uint64 `json:"-"`
	// PartLimit is the largest number of records of one part of a fair topic that the claim returns; 0 is no limit.
	PartLimit int
	// PassOver reports whether the claim leaves out a member of a store that is made of several, whose
	// name is that of Record.Store. Other stores ignore it. nil leaves out none. It has the same rules
	// as Full.
	PassOver func(store string) bool `json:"-"`
}

// Settlement is the outcome of a leased record. Each field names the methods that read it;
// other methods ignore it.
type Settlement struct {
	Lease Lease
	// Delay until the record is due again, for Abandon and Snooze; negative is 0.
	Delay time.Duration
	// Err becomes the record's LastError, for Abandon and Fail. A store keeps the first
	// 4,096 bytes.
	Err string
	// Park, for Fail, makes the later records of the same topic and key dead too. See KeyPark.
	Park bool
	// Unhandled, for Fail, says that no handling has begun under the lease, so no attempt counts.
	Unhandled bool
}

// Queue leases records to workers and stores the outcomes of their handling.
//
// Due times, leases and expiry follow the clock of the database, never that of the caller.
//
// Ack, Abandon, Fail, Release, Snooze and Extend act on valid leases. A lease is valid
// while its record is leased by that owner under that claim number. It stays valid after
// its end until the record is reaped or claimed again; an ordered claim also ends the
// expired leases of the keys that it returns. Methods ignore invalid leases and unknown ids
// without an error. The number of round trips of a call does not grow with the number of
// leases, except on SQL Server, which needs one for each 900 leases, and on MongoDB for
// steps of joins.
//
// A record whose lease has expired SuspectExpiries times since it was last abandoned,
// snoozed or requeued is a suspect: it may kill its worker. If the first record that a
// claim meets is a suspect, the claim returns only this record; if it meets a suspect
// later, it ends before the suspect. From then on each expiry counts as an attempt. The
// store counts; the reader makes the record dead after the last attempt. Because a suspect
// is claimed alone, records that were only prefetched with it lose no attempts. Therefore a
// reader settles or releases all other records before it starts a suspect, and claims
// nothing until it has settled the suspect. A reader starts no handling after the end of
// the lease, which it measures with its own monotonic clock from before the claim. It also
// starts no record that it still handles under an older lease.
type Queue interface {
	// RegisterGroup makes each registration's group a reader of its topics: from then on each
	// message that is appended to these topics reaches the group once. The first group that
	// registers gets the records that waited for a reader, in their order; ordered claims
	// return no record of the topic before the group has all of them. A registration with Hold
	// gets none of them (see Registration.Hold). RegisterGroup is
	// idempotent. Each call updates the times at which the group and the worker were last
	// seen, and adopts records that wait for its topics, unless the registration holds. If a transaction is open during the
	// first call, its messages may or may not reach the new group; they reach the earlier
	// groups in either case. A call that fails may have made some of the registrations; repeat
	// it.
	//
	// A call with a TTL sets the end of the group's registration for the selection to now +
	// TTL, which may be later or earlier than before. A call without a TTL makes the
	// registration permanent until DropGroup. Later calls with a TTL do not change this, so a
	// process without a TTL keeps its registration although another process of the group sets
	// a TTL.
	RegisterGroup(ctx context.Context, regs ...Registration) error

	// Claim leases up to Limit due records of the group: those that are pending, or whose
	// lease has ended, and that have not expired. It counts a lease that has ended as
	// ReapExpired does. It is atomic: no record has two owners. If no record is due, it
	// returns no records and no error. Claim numbers never decrease.
	//
	// If thousands of records become due at once, an ordered claim may return the records of
	// an earlier moment, at which fewer of them were due. A later claim returns those that
	// became due, or were appended, after that moment.
	//
	// If Claim returns an error, it may have leased more records than it returned, because the
	// answer may be lost. These records are due again when their leases end. Until then an
	// ordered claim by the same owner returns later records of their keys, so use a new
	// OwnerToken after an error.
	Claim(ctx context.Context, req ClaimRequest) ([]*Record, error)

	// Extend sets the end of the leases to now + lease and returns those that are valid.
	Extend(ctx context.Context, lease time.Duration, leases []Lease) ([]Lease, error)

	// Ack makes the records processed: the store deletes them, or, if it retains processed
	// records, keeps them with the time and by. by names the worker for operators, such as
	// host:pid, in up to 255 characters (ErrInvalidRecord); "" is no name.
	Ack(ctx context.Context, by string, leases []Lease) error

	// Abandon makes the records due again after their delay, and counts the
	// attempt.
	Abandon(ctx context.Context, settlements []Settlement) error

	// Fail makes the records dead, and counts the attempt unless Settlement.Unhandled is set.
	// (See Record.Attempts for stores that do not count it.) Records that Park takes along
	// keep their own Attempts and Expiries; their LastError says that they were parked
	// (storekit.ParkedError).
	Fail(ctx context.Context, settlements []Settlement) error

	// Release undoes the claim of the records: they are due as before, and keep their expiries
	// and last error. Only Claims stays counted.
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

// TopicStats counts the records of one topic and group by status. A count that equals the
// limit of the request means "this many or more": the store stops there, so that the cost
// does not grow with the backlog.
type TopicStats struct {
	// Store names the store that was counted, where a store is made of several
	// (package tenants); "" elsewhere.
	Store string
	// Group is the group. "" counts the records that wait for the first group that
	// registers for their topic.
	Group string
	Topic string

	// Pending counts the records that wait: the pending ones, including those that are not due
	// yet, and those whose lease has ended, because the next claim may return them. Leased counts
	// the others that are leased: those that a worker has. So each record is in one of the four.
	Pending, Leased, Processed, Dead int
	// Delayed counts those of Pending that are not due yet: they wait for their first time, for
	// a retry, or because they were snoozed. The others of Pending are due.
	Delayed int
	// OldestDue is the due time of the record that has been due longest, for one whose lease has
	// ended the end of the lease; zero if no record is due. If Pending is the limit of the request,
	// it is that of the records that were counted: another one may have been due longer.
	OldestDue time.Time
}

// ListQuery selects the records that match every field that is set. Texts are compared
// exactly, including the case of letters. An index finds only leased, processed or dead
// records by status, group and topic; every other query looks at each record.
type ListQuery struct {
	// Group limits the list to one group; "" is all of them, and the records that wait
	// for one.
	Group string
	// Topic limits the list to one topic; "" is all of them.
	Topic string
	// Status limits the list; "" is all of them.
	Status Status
	// Key limits the list to the records of one key; "" is all of them.
	Key string
	// MessageID limits the list to one message, of which each group has a record; "" is all.
	MessageID string
	// CorrelationID limits the list to one conversation; "" is all of them.
	CorrelationID string
	// TenantID limits the list to one tenant; "" is all of them.
	TenantID string
	// ErrorText limits the list to records whose LastError has that text in it; "" is all.
	ErrorText string
	// Contract limits the list to messages of one contract, by the metadata of package contracts,
	// [MetadataContract], or where that is missing of a CloudEvent, ce_type; "" is all.
	Contract string
	// ContractVersion limits the list to one version of contracts, by [MetadataContractVersion],
	// or where that is missing ce_contractversion; 0 is all of them, negative is refused.
	ContractVersion int
	// CreatedAfter limits the list to records that were created then or later; zero is all.
	CreatedAfter time.Time
	// CreatedBefore limits the list to records that were created earlier; zero is all.
	CreatedBefore time.Time
	// Content asks for the Payload and Metadata of the records. Without it both are nil, so that
	// a page of large records costs little.
	Content bool
	// After continues a list behind this id, even if its record is gone; zero is the
	// beginning.
	After WorkItemID
	// Limit is the largest number of records to return; 0 is 100, negative is refused.
	Limit int
}

// Inspector serves operators: CLI, dashboard, metrics.
type Inspector interface {
	// Stats counts the records of each group and topic up to limit per count;
	// 0 is 10,000. The list is sorted by group and topic, with the records that wait for a
	// group first.
	Stats(ctx context.Context, limit int) ([]TopicStats, error)
	// Groups lists the groups that have a registration, and those whose
	// registrations have ended but that still have records, sorted by name.
	Groups(ctx context.Context) ([]GroupInfo, error)
	// DropGroup removes the group with its registrations. "" is DefaultGroup.
	//
	// It gives back the records that are neither processed nor dead, of each topic that no other
	// group reads when the registrations are removed: from then on they have no group, and the
	// first group that registers for their topic gets them, in their order. Such a record is due as when it
	// was appended, its lease has ended, Attempts and Expiries are 0, and Claims and LastError
	// stay. DropGroup deletes all other records of the group. It returns both numbers, after an
	// error those that it has reached.
	//
	// It uses many transactions, each for a bounded number of records. Another group that
	// registers during the call gets what is given back, before and after. If the group itself registers
	// again during the call, the records that are appended from then on stay. If the call was
	// interrupted, Groups lists the group as one that has ended, and another call finishes the drop as it
	// began: what is to be given back is still given back, whichever groups read the topic by
	// then. If the group registers first, it keeps what it still has.
	//
	// DropGroup does not wait for open transactions: a record that such a transaction appends for
	// the group may be there after its commit, until the next DropGroup.
	DropGroup(ctx context.Context, group string) (Dropped, error)
	// List returns records in the order of their ids, which is about the order in
	// which they were appended. It goes on until it has query.Limit of them or all is
	// looked at, in as many steps as that takes. The role roles.Repairs looks at a
	// bounded number of records with each call, and requeues and deletes by a query.
	List(ctx context.Context, query ListQuery) ([]*Record, error)
	// Get returns one record, or ErrNotFound. With the id that Append has set, a store on the engine says under which ids other
	// groups have records of the message, if the record itself is gone: see CopiesError.
	Get(ctx context.Context, id WorkItemID) (*Record, error)
	// Requeue makes dead records pending and due at once, and returns how many. It sets
	// Attempts and Expiries to 0, clears ExpiresAt, and keeps LastError. It ignores records
	// that are not dead. With a parked record it also requeues the other records that were
	// parked with its key.
	Requeue(ctx context.Context, ids ...WorkItemID) (int, error)
	// Delete removes records of every status, and returns how many.
	Delete(ctx context.Context, ids ...WorkItemID) (int, error)
}

// Janitor keeps a store small. Each call except Maintain processes at most limit records
// and returns how many. A number below limit means that no work is left, or that another
// janitor is doing it.
type Janitor interface {
	// Maintain does a bounded part of the engine's maintenance, such as emptying a segment of
	// PostgreSQL's log, and reports whether more is left. Readers see no change: no record
	// becomes due, dead or deleted. A store without such work returns false.
	//
	// Every process calls it every few seconds. Among the processes that share a database only
	// one works at a time, and the store decides how often; every other call returns false at
	// once. Append, Claim and settling never wait for it longer than some milliseconds. If
	// more is left, pause before the next call, because the work takes part of the database's
	// capacity; finished work stays done. Work that another session blocks, such as emptying a
	// table that is being dumped, waits for a later call and is not an error.
	Maintain(ctx context.Context) (more bool, err error)
	// DeleteProcessed deletes processed records older than the retention.
	DeleteProcessed(ctx context.Context, limit int) (int, error)
	// ExpireDue makes records dead whose expiry has passed and that are pending or leased under a
	// lease that has ended, including records that wait for a group. It sets LastError to "expired".
	ExpireDue(ctx context.Context, limit int) (int, error)
	// DeleteDedupKeys deletes dedup keys whose window has ended.
	DeleteDedupKeys(ctx context.Context, limit int) (int, error)
	// ExpireRegistrations removes registrations whose end has passed (see Registration.TTL).
	// It deletes the undelivered records of their groups: those that are pending or whose
	// lease has ended, in topics that no registration of the group selects any more. It
	// processes at most limit registrations and limit records, and returns both numbers.
	//
	// Dead records stay for the operator, and processed records for their retention. A record
	// whose lease has not ended stays with its owner; if the owner does not ack it, a later
	// round deletes it. A later round also deletes records of a transaction that was open when
	// the registration ended and that commits within 24 hours, and dead records that are
	// requeued while no group reads their topic: register the group before you requeue.
	//
	// Between the end of a registration and the call an append still reaches the group.
	// Afterwards it does not: if no group reads the topic any more, the message waits for the
	// first group that registers. A group that registers again before its registration is
	// removed loses nothing; a group that registers again later keeps the records that are not
	// deleted yet. Registrations without a TTL never end.
	ExpireRegistrations(ctx context.Context, limit int) (registrations, records int, err error)
}

// Schema manages the tables of a store.
type Schema interface {
	// Ensure creates the schema or brings it up to date. It is idempotent, and safe when many
	// processes start at once. It returns ErrSchemaNewer if a newer version of Outmill made
	// the schema.
	Ensure(ctx context.Context) error
	// Statements returns the whole schema as plain SQL (or the engine's own
	// language), for the user's own migration tool. They are for an empty database, each
	// of them once: where the schema is there, a second run may fail. Ensure may be repeated.
	Statements() []string
	// StatementsFrom returns the statements that bring a schema of this version to the newest
	// one: the last part of Statements. 0 is an empty database, so it returns all; for the
	// newest version it returns none. It returns ErrSchemaNewer for a version that this
	// program does not know, and ErrInvalidConfig for a negative one.
	StatementsFrom(version int) ([]string, error)
}

// Store is one outbox in one database, in all its roles. The roles are small, so that a
// publisher does not see the methods of a worker. A store also implements the roles of
// package storekit that its engine supports.
//
// These rules hold for each method of each role:
//
//   - Methods may be called concurrently.
//   - An error does not mean that nothing was written, because the answer to a commit can
//     be lost. Every call except Append may be repeated.
//   - A call for many records is atomic for each record, not for all of them: a store may
//     use several steps. Only Append is atomic as a whole.
//   - When the context ends, the method returns ctx.Err(), wrapped.
//   - In its own transaction, a store retries after a transient error: a deadlock, a
//     serialization failure, a busy database. It makes about ten attempts, with pauses of up
//     to 200 ms; if the server has no primary or the database is locked, it retries for about
//     20 s. In the caller's transaction it returns the error of the driver, wrapped.
//   - Methods other than Append and TxOf ignore a transaction in the context.
//   - After Close, methods with a context return ErrClosed. TxOf and the methods without a
//     context may still answer.
//   - No method does unbounded work in one transaction. DropGroup, Requeue, and
//     RegisterGroup, which adopts waiting records, may use several.
type Store interface {
	Writer
	Queue
	Inspector
	Janitor
	Schema
	// Close ends the goroutines and closes the connections that the store itself started. It
	// does not close a handle that the caller passed in.
	Close() error
}
