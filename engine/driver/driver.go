package driver

import (
	"context"
	"errors"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// DB is one outbox in one database. It is safe for concurrent use.
type DB interface {
	// View runs fn in a transaction that only reads. Before Ensure it returns outmill.ErrSchemaMissing, and with a schema of another
	// version outmill.ErrSchemaOutdated or ErrSchemaNewer, as Update and Within do.
	View(ctx context.Context, begin Begin, fn func(Tx) error) error
	// Update runs fn in a transaction, and commits if fn returns nil. It runs fn again after a deadlock, a
	// conflict or another temporary failure.
	Update(ctx context.Context, begin Begin, fn func(Tx) error) error
	// Within runs fn in the caller's transaction, which TxOf has returned, and neither commits nor rolls back.
	// If fn fails, nothing of it is left in the transaction. It returns storekit.TxGone if the transaction
	// has ended, and then writes nothing. There fn inserts and finds rows, and reads and writes entries; it
	// changes no row and no note, and reads no page.
	Within(ctx context.Context, tx any, fn func(Tx) error) error
	// Transact runs fn in a new transaction of the caller's kind, which the context of fn carries. It commits if
	// fn returns nil, and rolls back otherwise, after a panic too. It runs fn again after a temporary failure,
	// ErrBusy included. It returns the errors of fn as they are, storekit.TxGone if fn has ended the transaction, and an error that wraps
	// storekit.ErrCommitInDoubt if it does not know whether the commit took effect. See roles.Transactor.
	Transact(ctx context.Context, fn func(ctx context.Context) error) error
	// TxLimit is the longest duration of a transaction; 0 is no limit.
	TxLimit() time.Duration
	// Read is Tx.Load outside of a transaction, after the one that has read or changed the rows.
	Read(ctx context.Context, rows []Row, want Want) ([]Content, error)
	// TxOf returns the transaction of this database that ctx carries, or nil. One that cannot be used is outmill.ErrInvalidTx. See
	// outmill.Writer.
	TxOf(ctx context.Context) (any, error)
	// Explain adds the operation and a remedy to an error, which it wraps. Nil stays nil.
	Explain(ctx context.Context, operation string, err error) error

	// Ensure and StatementsFrom are those of outmill.Schema.
	Ensure(ctx context.Context) error
	StatementsFrom(version int) ([]string, error)
	Limits() storekit.RowLimits
	// Close ends what the driver itself has started. No call comes after it.
	Close() error
}

// ErrBusy says that another open transaction has written an entry.
var ErrBusy = errors.New("another open transaction has changed it: repeat this one when the other has ended")

// Begin says how a transaction begins, and what its first read probably is. A driver may send that read along with
// the begin. It must answer the first call as if it had come alone: the engine may ask for something else.
type Begin struct {
	// Durable waits for the disk at the commit. Without it a crash of the server may undo the transaction,
	// if the driver's settings allow for that.
	Durable bool
	// Urgent is for the extension of leases: where transactions of one process wait for each other, it passes before
	// those that are not. A claim that passed before could take a record whose handler still runs.
	Urgent bool
	// Inserts says that the transaction ends with its only Insert. A driver may send the begin and the commit along, and guess the State: if
	// it was wrong, nothing is written, and fn runs again. Now is then certain behind the Insert.
	Inserts bool
	// At most one of these is set.
	Ask      *Ask
	Find     []outmill.WorkItemID
	Searches []Search
	Topics   *Topics
}

// Generations count the changes of the registrations and of the pauses, so that a process knows whether it has
// read the newest. A database that may lose commits, or be set back, takes them from the clock, so that none comes twice. See Tx.Bump.
type Generations struct{ Routes, Pauses int64 }

// State is read with the first statement of a transaction.
type State struct {
	// Now is the time of the database's clock.
	Now Time
	Generations
	// Notes says that there are notes, and Paused that some have the Blocker of a pause. Both may be true
	// for no reason. Without notes no row is in stage Held, because the engine drops a note only when nothing is under it: Due, and
	// Pages without Ask.Keys, need not look for such rows.
	Notes, Paused bool
	// Unrouted says that rows wait for a first group.
	Unrouted bool
	// Serial says that no other transaction changes anything until this one ends.
	Serial bool
}

// Noted notes what the notes that a transaction writes say about the database.
func (s *State) Noted(notes []Note) {
	for _, n := range notes {
		_, paused := ByPause(n.Blocker)
		s.Notes, s.Paused = true, s.Paused || paused
	}
}

// Tx is a transaction. Its calls come one after the other. Each is one round trip, or a fixed number. An error
// ends the transaction.
//
// Each call sees what was committed when it begins, and what the transaction itself has changed (READ
// COMMITTED). If an engine has only transactions that see one moment, such as SNAPSHOT, a row or a generation that
// was changed since then is a conflict, and Update runs again. The calls of a View see one moment, or, where that
// costs too much, each call one of its own.
type Tx interface {
	State() State

	// Insert inserts rows that have no Seq, and decides their order. An ID that exists is an error.
	Insert(ctx context.Context, rows []NewRow) error
	// Replace gives a row that is locked another payload and metadata, and the Size of the new row.
	Replace(ctx context.Context, row NewRow) error
	// Attach makes rows records of a step: it sets their Step, and adds the join to the Joins of their content,
	// as the last one.
	Attach(ctx context.Context, step outmill.WorkItemID, join outmill.JoinID, rows []Row) error
	// Apply writes changes of rows and notes.
	Apply(ctx context.Context, changes Changes) (Applied, error)

	// Rows returns the results of all searches, one after the other. One search returns each row once, also a row that changes during it.
	Rows(ctx context.Context, searches ...Search) ([]Row, error)
	// Find returns the rows with these ids, each once, in any order.
	Find(ctx context.Context, ids []outmill.WorkItemID) ([]Row, error)
	// Lock returns the row with this id and locks it until the transaction ends, so that Apply does not lose
	// it; found is false if there is none.
	Lock(ctx context.Context, id outmill.WorkItemID) (r Row, found bool, err error)
	// After looks at the first rows behind an id, up to limit. It returns the ids of all of them, by id, and in any order the rows
	// that are like the given one. Other rows of them may be in the list as well: the engine looks again. If the given one is of
	// stages behind Leased only, a driver may pass by rows of other stages, so that their ids are not among those.
	After(ctx context.Context, id outmill.WorkItemID, limit int, like Like) ([]outmill.WorkItemID, []Row, error)
	// Load returns the content of rows, in their order.
	Load(ctx context.Context, rows []Row, want Want) ([]Content, error)
	// Page returns a page of a line.
	Page(ctx context.Context, ask Ask) (Page, error)
	// Pages returns a page of each line, of one moment, with Ready and, if ask.Keys is set, Keys. A page is Busy, and empty, if
	// the page that Page returns of the line has more than that, if another transaction has locked the line, or, where ask.Keys is
	// not set, if ByKeyed finds rows. Without ask.Lock it leaves out the rows that others have locked, and locks the others, as
	// Search.Free does.
	Pages(ctx context.Context, ask Ask, lines []Line) ([]Page, error)
	// Whole returns the state of all rows of a line, as if they had one key. It needs not have Held and Parked.
	Whole(ctx context.Context, line Line, owner string) (KeyState, error)

	// Due returns the lines that may have something to claim, those first whose rows have been due longest: a ready or held row since
	// the later one of Next and Created, and one of ByComing since Wake.
	Due(ctx context.Context, ask Topics) ([]Line, error)
	// LinesOf returns the lines of all rows of each group, in the order of the groups, and then by topic and part.
	LinesOf(ctx context.Context, groups ...string) ([]Line, error)
	// Pausing returns the different Blockers of a group's notes that are those of pauses.
	Pausing(ctx context.Context, group string) ([]string, error)
	// Count counts the rows that Rows returns of each search. The searches may be of many lines.
	Count(ctx context.Context, searches ...Search) ([]Counted, error)
	// Keys returns the states of keys of a line.
	Keys(ctx context.Context, line Line, owner string, keys []string) (map[string]KeyState, error)
	// Adopt gives up to limit rows of a line without a group to the group, those that wait for a first one, in their order.
	Adopt(ctx context.Context, from Line, group string, limit int) (int, error)
	// Forget deletes the notes of a group.
	Forget(ctx context.Context, group string) error

	// Put writes entries, whether they exist or not.
	Put(ctx context.Context, entries ...Entry) error
	// Take writes those entries whose Kind and Key are free, or whose At has come, which one of 0 always has, and says which. If another
	// open transaction has taken one, it waits for that, or returns a temporary error, such as ErrBusy.
	Take(ctx context.Context, entries ...Entry) (free []bool, err error)
	// Add writes an entry if its Kind and Key are free, whatever the At is of one that exists. If another open
	// transaction has written the entry, it waits for at most wait, and then returns ErrBusy; with 0 it waits as
	// long as the engine does by default. The transaction stays usable.
	Add(ctx context.Context, wait time.Duration, entry Entry) (added bool, err error)
	// Entries returns those entries that exist and have the Kind and Key of one of keys, in any order. With lock
	// it locks them until the transaction ends, and waits for another open transaction that has changed one, or
	// returns ErrBusy. It locks them in the order of keys.
	Entries(ctx context.Context, lock bool, keys ...Entry) ([]Entry, error)
	// CountEntries counts the entries of each kind, in the order of kinds.
	CountEntries(ctx context.Context, kinds ...string) ([]int, error)
	// Scan returns the entries of a kind whose key begins with the prefix, by key.
	Scan(ctx context.Context, kind, prefix string) ([]Entry, error)
	// Range returns up to limit entries of a kind whose key is larger than after, by key.
	Range(ctx context.Context, kind, after string, limit int) ([]Entry, error)
	// Old returns entries of a kind whose At is not after until, by At. It may leave out those that other open
	// transactions have changed.
	Old(ctx context.Context, kind string, until Time, limit int) ([]Entry, error)
	// Delete deletes entries. One that is given with an At is deleted only if the stored one has the same: otherwise somebody else
	// has renewed it. With an At of 0 it is deleted whatever its At is.
	Delete(ctx context.Context, entries ...Entry) error
	// Bump raises the generations of the registrations, of the pauses, or with neither none of them, and
	// returns them as they are then. From the call on no other transaction bumps until this one ends; what is read
	// afterwards is what the others have committed before.
	Bump(ctx context.Context, routes, pauses bool) (Generations, error)

	// OnCommit has fn run after the commit of this run of the transaction, if the driver learns of it: a commit
	// of the caller's own transaction may pass it by. A View that returns nil counts as committed.
	OnCommit(fn func())
}

// Maintainer is a DB that has upkeep of its own, such as partitions to drop. See outmill.Janitor.
type Maintainer interface {
	Maintain(ctx context.Context) (more bool, err error)
}

// Sharer is a DB that says which database it shares with others: a comparable value, which is equal for those
// on one. See roles.Idle.
type Sharer interface {
	SharesWith() any
}

// Rester is a DB that answers for several stores with one question whether they rest. Without it, the engine searches in one after the
// other. See roles.Idle.
type Rester interface {
	// Resting returns for how long each of the stores rests if nothing changes: zero if it does not rest, or cannot be asked, and less
	// if the driver cannot tell yet, so that the engine searches. All have drivers of this kind with an equal SharesWith. The answer of
	// a Witness is that of a database which no other one has replaced, because it stands while the Witness hears nothing.
	Resting(ctx context.Context, stores []Rest) ([]time.Duration, error)
}

// Rest is the question whether a store rests: it has no row that ByOpen finds, and nothing whose time has come.
type Rest struct {
	DB DB
	// Processed is how long processed rows are kept behind their time. Ends has the kinds of entries that end, and how long each is
	// kept behind its At.
	Processed time.Duration
	Ends      []Ending
}

// Ending is a kind of entries that end.
type Ending struct {
	Kind string
	Kept time.Duration
}

// Looker is a DB that can say with one statement that a group has nothing. The engine asks it where the last look for lines has found
// none, so that a reader with nothing to do costs one statement a look.
type Looker interface {
	// Quiet reports that Due finds no line, also after a pause has ended, that no row waits for its first group, and that the
	// pauses still have this generation. It is false if the driver cannot tell. The group is never quiet where rows are held, or
	// due later.
	Quiet(ctx context.Context, ask Topics, pauses int64) (bool, error)
}

// Witness is a Hearer that hears of each change which opens a row. The engine then keeps the answers of a Rester while the Witness
// hears nothing.
type Witness interface {
	// Heard returns a number that rises with each report, and with the begin and the end of each connection, and whether a connection
	// is open.
	Heard() (reports uint64, hears bool)
}

// Notifying is a DB that shares hints with others, such as those of one process on one database. The engine then
// uses this notifier, and does not close it.
type Notifying interface {
	Notifier() *storekit.Notifier
}

// Hearer is a Notifying DB that can hear of the commits of other processes, such as by notifications of the database.
type Hearer interface {
	// Hear has the Notifier get the hints of other processes until ctx ends. It returns at once. Several calls may share one
	// connection.
	Hear(ctx context.Context)
	// HearsOthers reports whether Hear does anything. See roles.Waker.
	HearsOthers() bool
}

// Teller is a Hearer that can also tell other processes of changes other than appends, such as the end of a pause.
type Teller interface {
	// Tell has the readers of other processes look at all topics soon. It returns at once.
	Tell()
}

// Acker is a DB that deletes rows by their leases and opens the notes of their keys in one round trip. The
// engine uses it where an ack has nothing else to do. It leaves the rows that have a Step, and returns the
// leases of the list that belong to such a row. All leases have one owner.
type Acker interface {
	Ack(ctx context.Context, leases []outmill.Lease, durable bool) (left []outmill.Lease, err error)
}

// Noter is a DB that notes a message in a caller's transaction in one round trip, without a Within around it. An error
// leaves the transaction usable, and nothing in it; storekit.TxGone says that the transaction has ended.
type Noter interface {
	// Note is Tx.Add of the entry in the caller's transaction, which TxOf has returned. Made becomes the time of the database's
	// clock, and At the time keep later. It returns outmill.ErrLeaseLost, and adds nothing, unless the row of the lease has
	// that lease, also after a wait for another transaction. It does not lock the row. A lease without an id is not looked at.
	Note(ctx context.Context, tx any, entry Entry, keep, wait time.Duration, lease outmill.Lease) (added bool, err error)
}

// Ender is a DB that ends a caller's transaction with a Swap in one round trip, where it has begun that transaction in Transact.
type Ender interface {
	// End does the Swap in the caller's transaction, which TxOf has returned, with the commit. If the entry is another one, Found
	// is false, and the transaction can only be rolled back. can is false, and nothing is done, where the commit cannot travel.
	End(ctx context.Context, tx any, swap Swap) (done Swapped, can bool, err error)
}

// Historian is a Tx of a driver with a log, to which each message is written once: which group reads a row follows from the history of the
// registrations. The engine calls it in the transactions that change registrations, behind Bump.
type Historian interface {
	// Registered adds events to the history, in their order.
	Registered(ctx context.Context, events ...Event) (Left, error)
}

// Left counts rows of a log that the groups of ended registrations had not read, each up to 10,000 for a line. They are no rows of a
// group any more.
type Left struct {
	// Waiting rows wait for a first group, and Gone ones reach nobody else.
	Waiting, Gone int
	// More says that a sweep has left rows for the next one.
	More bool
}

// Event is what happens to a registration, or to a group.
type Event struct {
	What  What
	Group string
	// Topics are the selection of the registration, for the first four.
	Topics outmill.Topics
	// Takes says that a registration that begins does not hold.
	Takes bool
	// Limit is how many rows Swept takes away at most.
	Limit int
}

// What is a kind of Event.
type What int

const (
	// Begins is a new registration.
	Begins What = iota
	// Takes is one that held, and takes what waits from now on.
	Takes
	// Ends is the end of its TTL.
	Ends
	// Drops is its end by DropGroup. What the group has left is given back or deleted in steps.
	Drops
	// Swept groups lose what their ended registrations selected and still waits: rows of appends that knew these registrations, up to the
	// limit. Once there are no more, the group has nothing left, but such rows of open transactions may come for a later sweep.
	Swept
	// Dropped groups have nothing left that their drop gives back.
	Dropped
)
