package driver

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// Time is a time of the database's clock, in microseconds since 1970. 0 is none.
type Time int64

// Never is behind every time that a row has.
const Never Time = math.MaxInt64 / 2

// Of returns the time in UTC; zero for none.
func (t Time) Of() time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(t)).UTC()
}

// After returns the time d later; t itself if d is not positive. It rounds up to a microsecond, and ends
// at Never.
func (t Time) After(d time.Duration) Time {
	if d <= 0 {
		return t
	}
	micros := Time(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		micros++
	}
	return min(t+micros, Never)
}

// Stage is where a row stands, more closely than the status of its record. Each search reads one stage, so
// that its cost does not depend on the rows in the others.
type Stage int

const (
	// Ready rows are due, and claims meet them in the order of their Seqs.
	Ready Stage = iota
	// Held rows are due, and the note Row.Under says why a claim must not take them.
	Held
	// Waiting rows were claimed before, and wait for Row.Wake: a retry, a snooze, or their expiry.
	Waiting
	// Delayed rows were not claimed since they were appended, or since their group was dropped, and wait for Row.Wake:
	// their first time, or their expiry.
	Delayed
	// Leased rows belong to Row.Owner. Their lease ends at Row.Wake.
	Leased
	// Processed rows were acked, and stay for the retention.
	Processed
	// Dead rows stay until an operator requeues, edits or deletes them.
	Dead
)

// Line is one part of one topic of one group. Its rows have an order: that of their Seqs. Group "" has the rows that
// wait for a first group. Part is 0 but in fair topics, where package engine chooses it.
type Line struct {
	Group, Topic string
	Part         int
}

// Name is a text for the topic and part of the line: see storekit.LineName.
func (l Line) Name() string { return storekit.LineName(l.Topic, l.Part) }

// LineOf is the line of a group with this name.
func LineOf(group, name string) Line {
	topic, part := storekit.TopicOfLine(name)
	return Line{Group: group, Topic: topic, Part: part}
}

// ByTopic compares lines of one group.
func ByTopic(a, b Line) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Part, b.Part))
}

// LinesOfEach is LinesOf for a driver that asks for each group by itself. of may return lines in any order.
func LinesOfEach(ctx context.Context, groups []string, of func(ctx context.Context, group string) ([]Line, error)) (all []Line, _ error) {
	for _, group := range groups {
		lines, err := of(ctx, group)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(lines, ByTopic)
		all = append(all, lines...)
	}
	return all, nil
}

// Row is a record without its content.
type Row struct {
	// These fields never change, but for Group, which an adoption sets and a change of a row may make "".

	// Seq is the place of the row in its line: larger than that of every row that was committed before the
	// row was inserted. It is unique in the line: the rows of a message in the lines of several groups may share one, as
	// they do in a log. Insert decides it, also in a caller's transaction, so a row may be committed after rows with a
	// larger Seq.
	Seq int64
	ID  outmill.WorkItemID
	Line
	Key, Tenant string
	Created     Time
	// Step is the id of the message's first row, if the message is a step of joins; zero is none. All rows of a
	// message have the same. Attach sets it later, too.
	Step outmill.WorkItemID
	// WaitsFor is the join that makes the row due when it is decided; zero is none.
	WaitsFor outmill.JoinID
	// Size is the number of bytes of the record, as Record.Size counts them.
	Size int

	// These fields are the state. Only package engine changes them.

	Stage Stage
	// Wake is when the stage ends by time: the time at which a waiting or delayed row becomes due or
	// expires, whichever is first, and the end of a lease. It is 0 in other stages.
	Wake Time
	// Next is when the row is due, or was.
	Next Time
	// Expires is when the row expires; 0 is never.
	Expires                    Time
	Attempts, Claims, Expiries int
	// Owner is the text of the owner's token, and Worker the name of its worker, in stage Leased.
	Owner, Worker string
	// Under is the name of the note that holds the row, in stage Held.
	Under string
	// Parked marks dead rows that were parked with their key.
	Parked bool
	// Processed and By say when and by whom the row was acked, in stage Processed.
	Processed Time
	By        string

	// Error is the new last error of a changed row; nil leaves the stored one. Searches leave it nil.
	Error *string
	// Tried is what Apply puts in front of the row's history, of which it then keeps the first HistoryBytes
	// bytes: it may cut anywhere. "" leaves the history. Searches leave it empty.
	Tried string
	// Blocked says that the row is held under the note of its key, and that this note is not open. Only
	// Find, Lock and After set it.
	Blocked bool
	// Broken says which columns of the row cannot be decoded, and why; "" is none. See package driver. Those fields
	// are zero.
	Broken string
}

// HistoryBytes is how much a driver keeps of the history of a row.
const HistoryBytes = 3 << 10

// Want says what Load reads of the content, beside the texts that every record has.
type Want int

const (
	// Metadata is that of the record.
	Metadata Want = 1 << iota
	// Payload is that of the record.
	Payload
	// History is that of Content.
	History
	// Listed has the metadata in Content.Entries instead of the record, where the driver can make the list. A driver may ignore it.
	Listed
)

// Content is what a driver keeps beside a row.
type Content struct {
	// Record has MessageID, CorrelationID, CausationID, TraceParent, TraceState, DedupKey, Joins, LastError and DueAt, and the metadata
	// and payload that were wanted, which belong to the caller. DueAt is the later one of the Next and Created of the insert, and stays.
	// Nil is a row that was deleted since it was read.
	Record *outmill.Record
	// Entries is the metadata if Listed was wanted, and the driver has made the list; the record then has none.
	Entries []roles.MetadataEntry
	// History has the texts of Row.Tried, the newest first, as far as they are kept.
	History string
	// Broken says what of the wanted content cannot be decoded, and why; "" is nothing. Record then has the rest.
	Broken string
}

// Refuse adds to Broken that a column does not have what it should.
func (c *Content) Refuse(column, want string) {
	if c.Broken != "" {
		c.Broken += "; "
	}
	c.Broken += "column " + column + ": want " + want
}

// Note says why the rows are held whose Under is its Name. A note is open while Blocker is "": the next claim
// looks at its rows again.
type Note struct {
	Line
	// Name is KeyNote, PauseNote or KeyedPauseNote.
	Name string
	// Blocker is the text of the token of the owner whose lease blocks the key, RetryBlocks, the name of the
	// note of a pause, or "".
	Blocker string
	// Head is the Seq of the first row that is held under the note. It may be smaller, never larger.
	Head int64
	// LookAt is when a claim looks at the note although it is not open; 0 is never.
	LookAt Time
	// Looks is how many claims have found the same Blocker since the note was open.
	Looks int
}

// RetryBlocks is the Blocker of a key that has a row in stage Waiting.
const RetryBlocks = "waiting"

const (
	keyPrefix        = "k"
	pausePrefix      = "p"
	keyedPausePrefix = "q"
)

// KeyNote is the name of the note of a key.
func KeyNote(key string) string { return keyPrefix + key }

// KeyOf returns the key of a note's name, and whether the note is that of a key.
func KeyOf(name string) (key string, ok bool) { return strings.CutPrefix(name, keyPrefix) }

// PauseNote is the name of the note of rows without a key that a pause blocks, and the Blocker of each note
// of which the pause is the reason.
func PauseNote(number int64) string { return pausePrefix + strconv.FormatInt(number, 10) }

// KeyedPauseNote is the name, and the Blocker, of the note of rows with a key that a claim without an order
// has met in a pause. A claim in the order of keys gives them to the notes of their keys.
func KeyedPauseNote(number int64) string { return keyedPausePrefix + strconv.FormatInt(number, 10) }

// IsKeyedPause reports whether a Name or Blocker is a KeyedPauseNote.
func IsKeyedPause(name string) bool { return strings.HasPrefix(name, keyedPausePrefix) }

// ByPause reports whether a Name or Blocker is one of a pause, and returns the pause's number.
func ByPause(name string) (number int64, ok bool) {
	if !strings.HasPrefix(name, pausePrefix) && !IsKeyedPause(name) {
		return 0, false
	}
	number, err := strconv.ParseInt(name[1:], 10, 64)
	return number, err == nil
}

// Entry is a small thing. Kind and Key identify it.
type Entry struct {
	Kind, Key string
	// At is when the entry ends or has its turn. 0 is never for Tx.Old, and always for Tx.Take. Made is when it was made or last seen.
	At, Made Time
	Value    string
	// Passes says of an entry that is written: nothing needs it once At has come, so the database may delete it by itself then. Drivers
	// need not keep it.
	Passes bool
}
