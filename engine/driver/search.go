package driver

import (
	"math"

	"github.com/outmill/outmill"
)

// None is the Seq behind every row.
const None int64 = math.MaxInt64

// Index names a search. Each search reads one index, in one order.
type Index int

const (
	// ByStage finds the rows of a line in Stage, by Wake and Seq.
	ByStage Index = iota
	// ByPlace finds the ready and the held rows of a line, by Seq.
	ByPlace
	// ByKeyed finds the rows of a line that are held under the notes of keys, by Seq.
	ByKeyed
	// ByPaused finds the rows of a line that are held under the notes of pauses, by Seq.
	ByPaused
	// ByComing finds the rows of a line whose Wake has come: the waiting, then the delayed, then the leased ones, up to Limit of
	// each, by Wake and Seq. An expired one counts as well: a claim must meet it to free its key.
	ByComing
	// ByDue finds up to Limit of the ready rows of a line, by Seq, and then the rows of ByComing.
	ByDue
	// ByLater finds the rows of a line in Stage, which is Waiting, Delayed or Leased, whose Wake has not come, by Wake and Seq.
	ByLater
	// ByEnded finds the leased rows of all lines whose Wake has come, by Wake.
	ByEnded
	// ByExpiry finds the rows of all lines whose Expires has come, by Expires: those in stages Ready to
	// Delayed, and Leased if the lease has ended.
	ByExpiry
	// ByKey finds the rows of a line and a key, which is not empty, whose Seq is above From, by Seq, in stages Ready to
	// Delayed.
	ByKey
	// ByParked finds the parked rows of a line and a key, which is not empty, whose Seq is above From, by Seq.
	ByParked
	// ByDone finds the processed rows of all lines that were processed at Until or before, by Processed.
	ByDone
	// ByUnrouted finds the rows of the topic and part that wait for a first group, in stages Ready and Delayed.
	ByUnrouted
	// ByStep finds the rows of all lines that have the Step, in any order.
	ByStep
	// ByWaiter finds the rows of all lines that wait for the Join, in stages Waiting and Delayed, and whose Wake
	// has not come, in any order.
	ByWaiter
	// ByOpen finds the rows of all lines in stages Ready to Leased, in any order.
	ByOpen
)

// Search asks for rows, at most Limit of them.
type Search struct {
	By Index
	Line
	Stage Stage
	Key   string
	From  int64
	// Until is for ByDone. Whether a Wake or Expires has come, State.Now says.
	Until Time
	Limit int
	// Step is for ByStep, and Join for ByWaiter.
	Step outmill.WorkItemID
	Join outmill.JoinID
	// Free leaves out the rows that other transactions have locked, and locks the rows that it finds.
	Free bool
}

// Like says what rows have in common. An empty field is anything.
type Like struct {
	Group, Topic, Key, Tenant, MessageID, CorrelationID string
	// First and Last are the first and the last of their stages.
	First, Last Stage
}

// Looked is what Tx.After returns of rows that are sorted by id, for a driver that leaves all comparing to the engine.
func Looked(rows []Row, err error) ([]outmill.WorkItemID, []Row, error) {
	ids := make([]outmill.WorkItemID, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	return ids, rows, err
}

// Ask asks for a page of a line for a claim.
type Ask struct {
	Line
	// Owner is the text of the claim's token.
	Owner string
	// Free are the Blockers that do not block the claim, "" of open notes among them. A note whose LookAt has come counts as well.
	Free []string
	// Limit is the largest number of notes, of held rows of each note, and of ready rows. With Keys, the notes of keys share it: see Share.
	Limit int
	// Keys asks for the ready rows, and for the states of the keys of all rows and notes of the page.
	// Each KeyedPauseNote then counts as well, whatever its Blocker is: a claim without an order may have made it after this claim
	// has read which Blockers there are.
	Keys bool
	// Lock locks the line until the transaction ends: one claim at a time decides about the order of a line.
	// The moment of the page is after the lock is granted, also where locking and reading are one statement.
	Lock bool
	// Pass, with Lock, does not wait for a lock that another transaction has: the page is then Busy. A claim
	// waits for its first line only, so that two claims never wait for each other.
	Pass bool
	// Due is the Limit of a search ByComing before all others; 0 is none.
	Due int
	// Want is what the claim reads of the content of the rows that it leases. A page may bring it for the first MaxRows ready rows, as far as
	// their sizes are together at most MaxBytes: it is in memory before the lease is stored, so a larger row is not brought.
	Want              Want
	MaxBytes, MaxRows int
}

// Share is the largest number of held rows of each note of a key in a page with these notes. If each had Limit rows, a page would read
// many times the rows that a claim takes.
func (a Ask) Share(notes []Note) int {
	n := 0
	for _, note := range notes {
		if _, ofKey := KeyOf(note.Name); ofKey {
			n++
		}
	}
	if !a.Keys || n == 0 {
		return a.Limit
	}
	return max(1, a.Limit/n)
}

// Searches is the search of Ask.Due, or none.
func (a Ask) Searches() []Search {
	if a.Due == 0 {
		return nil
	}
	return []Search{{By: ByComing, Line: a.Line, Limit: a.Due, Free: true}}
}

// Page answers an Ask. If there are rows in Due, or Busy is true, the other fields may be empty: the
// claim makes the due rows ready, or leaves the line, and asks again. Otherwise all of a
// page is of one moment. If it were not, a record could be given back between the reads, and a claim would take a
// later record of its key first.
type Page struct {
	// Now is the time of the database's clock after the line was locked.
	Now Time
	// Busy says that another transaction has locked the line.
	Busy bool
	// Due are the rows of Ask.Searches.
	Due []Row
	// Notes are the notes that do not block the claim, by Head.
	Notes []Note
	// Held are the first rows under each of Notes: Ask.Limit of a note of a pause, and Ask.Share of one of a key. Those of one note are in the
	// order of their Seqs. Without Ask.Lock a driver whose transactions wait for each other leaves out those that others have locked, and
	// locks the others, as Search.Free does: a claim without an order waits for nobody while it has locked rows.
	Held []Row
	// Ready are the first ready rows, by Seq.
	Ready []Row
	// Contents are those of some of Ready, as Read returns them, if Ask.Want asks for them; nil is none. The claim reads the others. They are
	// only of rows whose content nobody else can change before the transaction ends.
	Contents map[outmill.WorkItemID]Content
	// Keys has a state for each key of Notes, Held and Ready, except "".
	Keys map[string]KeyState
	// Unrouted says that rows of the topic wait for a first group.
	Unrouted bool
}

// KeyState is what the rows of a key, or of a whole line, mean for a claim by an owner. A Seq of None is no
// row.
type KeyState struct {
	// Other is another owner that has a lease on a row; "" is none. A lease that has ended counts only if
	// its row has not expired.
	Other string
	// Due is the first row that is due and not admitted. A driver that is Serial may leave it None: a claim has admitted
	// all that is due in the same transaction, or it knows that it has not.
	Due int64
	// Waiting is the first row in stage Waiting that has not expired.
	Waiting int64
	// Held is the first row in stage Held under the key's note.
	Held int64
	// Parked is the first parked row.
	Parked int64
}

// Topics asks for the lines of a group that may have something to claim.
type Topics struct {
	Group string
	// Free: notes with one of these Blockers count, and notes whose LookAt has come.
	Free []string
	// Held says that rows count that are held under the notes of keys.
	Held bool
	// Lines asks for these only; nil is all.
	Lines []Line
}

// Counted is about the rows that a search finds.
type Counted struct {
	// N is their number, and Later the number of those whose Next has not come, without leased ones.
	N, Later int
	// Oldest is the first time of those that have not expired, Wake of leased ones and Next of others; 0 if there are none.
	Oldest Time
}
