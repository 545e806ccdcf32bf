package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// Answer says where a message is and what it waits for.
type Answer struct {
	// ID is the id of the question.
	ID string `json:"id"`
	// At is the time of the answer, to which "ago" and "in" refer, by the clock of this process.
	// The other times are those of the database's clock.
	At time.Time `json:"at"`
	// Text is the answer in one sentence.
	Text string `json:"text"`
	// Explanations has one entry for each record of the message that was found: each group
	// has its own. It is empty if none was found.
	Explanations []Explanation `json:"explanations"`
	// Examined is how many records the search for a message id looked at; 0 if no search was
	// necessary. Complete is false if the store has more records.
	Examined int  `json:"examined"`
	Complete bool `json:"complete"`
	// Unanswered are those of several stores that failed.
	Unanswered []string `json:"unanswered,omitempty"`
}

// Explanation says why one record is where it is. It holds no payload.
type Explanation struct {
	Record    outmill.WorkItemID `json:"record"`
	MessageID string             `json:"message_id"`
	Store     string             `json:"store,omitempty"`
	// Group is "" for a record that waits for the first group of its topic.
	Group   string         `json:"group"`
	Topic   string         `json:"topic"`
	Key     string         `json:"key,omitempty"`
	Status  outmill.Status `json:"status"`
	Reasons []Reason       `json:"reasons"`
	// Attempts are the last attempts of the record, the newest first (outmill.Record.History). In the answer to the id of a
	// message, the first 10 records have them.
	Attempts []Attempt `json:"attempts,omitempty"`
}

// Attempt is an outmill.Attempt. Its Error is "" with [WhyConfig].HideErrors.
type Attempt struct {
	At     time.Time `json:"at"`
	Worker string    `json:"worker,omitempty"`
	Error  string    `json:"error,omitempty"`
}

// Reason is one fact about a record.
type Reason struct {
	// Kind names the fact for programs:
	//
	//   - processed, dead, expired, parked: where the record ended;
	//   - leased, lease_ended: a worker has or had it;
	//   - due, delayed, snoozed, retry: when a claim may return it;
	//   - held, key_leased, key_waits, key_parked: an earlier record of its key is in the way;
	//   - paused: an operator has paused it;
	//   - no_group, adoption, holding, group_ended, not_selected, not_seen: who reads it;
	//   - breaker, on_hold: the broker takes nothing, or not its topic, as a forwarder has reported;
	//   - handler_runs: its handler has run for long, as a worker has reported;
	//   - suspect, expires: what the next claim will do with it;
	//   - unreadable: which parts of it the store cannot read;
	//   - came_back, comes_again: it came back many times without an attempt, by its counts and by the
	//     report of a worker;
	//   - waits_for_join, step_of_join: it is part of a join.
	Kind string `json:"kind"`
	// Text is the fact in sentences. Error texts are cut to 500 characters and quoted.
	Text string `json:"text"`
	// Record is the other record that Text names; zero is none.
	Record outmill.WorkItemID `json:"record,omitzero"`
	// Join is the join that Text names; zero is none.
	Join outmill.JoinID `json:"join,omitzero"`
	// At is the time that Text names; zero is none.
	At time.Time `json:"at,omitzero"`
	// Before counts, for due, the due records of the group and topic that became due earlier. All of
	// them were met, so AtLeast, which says that there may be more, makes it a lower bound: it is
	// MaxNeighbours or more in a long line. It is 0 with AtLeast if the store lacks the role
	// storekit.WaitingReader.
	Before  int  `json:"before,omitempty"`
	AtLeast bool `json:"at_least,omitempty"`
}

// WhyConfig are the settings of [Why]. The zero value is ready to use.
type WhyConfig struct {
	// MaxExamined is how many records a search for a message id looks at, because no index
	// finds it; 0 is 100,000.
	MaxExamined int
	// MaxNeighbours is with how many records of its group and topic a record is compared: so many of
	// each kind, such as ready or waiting for a retry, the first ones of each; 0 is 10,000, which
	// is also the most. Their content is not read, but for records of the same key.
	MaxNeighbours int
	// HideErrors leaves the error texts of handlers out of the answer, because they are data of
	// users. False quotes up to 500 characters of them.
	HideErrors bool
}

// Why explains where a message is and what it waits for. The id is that of a record, or that
// of a message, which has a record for each group. Why only reads. A question by the id of a
// record costs a few queries, each of which reads 10,000 records at most; a question by a
// message id looks at up to WhyConfig.MaxExamined records.
//
// Why reports facts of the store, and does not guess. A breaker that is open and a topic on hold
// are in the answer, because forwarders report them to the store. Other facts that only another process
// knows, such as the order of a group's claims, are not. A skipped
// duplicate has no record: see [WhyDuplicate]. A message
// that is not in the store is not an error. The errors are those of the store, and
// ErrInvalidConfig for an empty id. If some of several stores fail, such as tenants of a tenants.Set, the
// answer is that of the others, with a *storekit.PartialError.
func Why(ctx context.Context, store outmill.Inspector, id string, config WhyConfig) (Answer, error) {
	if outmill.IsNil(store) {
		return Answer{}, storekit.InvalidConfig("Why: the store is nil: pass an open store")
	}
	if id = strings.TrimSpace(id); id == "" {
		return Answer{}, storekit.InvalidConfig("Why: the id is empty: want the id of a record or of a message")
	}
	if config.MaxExamined < 0 {
		return Answer{}, storekit.InvalidConfig("WhyConfig.MaxExamined is %d: want 0 (the default) or more", config.MaxExamined)
	}
	if config.MaxNeighbours < 0 {
		return Answer{}, storekit.InvalidConfig("WhyConfig.MaxNeighbours is %d: want 0 (the default) or more", config.MaxNeighbours)
	}
	if config.MaxNeighbours == 0 {
		config.MaxNeighbours = roles.MaxExamined
	}
	if config.MaxExamined == 0 {
		config.MaxExamined = 100_000
	}
	answer := Answer{ID: id, Explanations: []Explanation{}, Complete: true}
	var partly error
	failed := storekit.PartialError{Failed: map[string]error{}}
	// none reports whether a call has no result. Otherwise it notes the stores that failed.
	none := func(err error) bool {
		if storekit.NoneAnswered(err) {
			return true
		}
		partly = cmp.Or(partly, err)
		_ = failed.Add(err)
		return false
	}
	records, err := find(ctx, store, id, config.MaxExamined, &answer)
	if none(err) {
		return Answer{}, err
	}
	groups, err := store.Groups(ctx)
	if none(err) {
		return Answer{}, err
	}
	var pauses []roles.PauseInfo
	if role, ok := outmill.As[roles.Pauses](store); ok {
		if pauses, err = role.Paused(ctx); none(err) {
			return Answer{}, err
		}
	}
	answer.Unanswered = failed.Stores()
	answer.Complete = answer.Complete && len(answer.Unanswered) == 0
	answer.At = time.Now().UTC()
	w := why{store: store, groups: groups, pauses: pauses, now: answer.At, hideErrors: config.HideErrors,
		maxNeighbours: config.MaxNeighbours}
	for _, r := range records {
		if slices.Contains(answer.Unanswered, r.Store) {
			// The list of groups, or that of pauses, may lack those of the record's store.
			continue
		}
		explanation, err := w.explain(ctx, w.whole(ctx, r, len(answer.Explanations)))
		if err != nil {
			return Answer{}, err
		}
		answer.Explanations = append(answer.Explanations, explanation)
	}
	answer.Text = answer.summary()
	return answer, partly
}

// shownWhole is of how many records of a message an answer has what only Get reads.
const shownWhole = 10

// whole returns the record with its history and what of its content cannot be read. A list has neither.
func (w why) whole(ctx context.Context, r *outmill.Record, nth int) *outmill.Record {
	if r.History != nil || nth >= shownWhole || r.Attempts == 0 && !storekit.Undeliverable(r.LastError) {
		return r
	}
	if got, err := w.store.Get(storekit.InStoreOf(ctx, w.store, r), r.ID); err == nil {
		return got
	}
	return r
}

// find returns the records with this id, and those of the message with this id.
func find(ctx context.Context, store outmill.Inspector, id string, limit int, answer *Answer) ([]*outmill.Record, error) {
	query := outmill.ListQuery{MessageID: id}
	var records []*outmill.Record
	var failed error
	if item, err := outmill.ParseWorkItemID(id); err == nil {
		r, err := store.Get(ctx, item)
		switch {
		case err == nil && r.MessageID != id:
			return []*outmill.Record{r}, nil
		case err == nil:
			// The other groups' records of the message got their ids after this one.
			records, limit = append(records, r), roles.MaxExamined
			query.After = r.ID
		case storekit.SomeAnswered(err):
			failed = err
		case !errors.Is(err, outmill.ErrNotFound):
			return nil, err
		}
	}
	found, seen, err := scan(ctx, store, query, limit)
	answer.Examined, answer.Complete = seen.examined, seen.complete
	return append(records, found...), cmp.Or(err, failed)
}

func (a Answer) summary() string {
	switch n := len(a.Explanations); {
	case n == 0 && len(a.Unanswered) > 0:
		return fmt.Sprintf("The stores that answered have no record or message with this id; %s did not answer, so ask again.",
			strings.Join(a.Unanswered, ", "))
	case len(a.Unanswered) > 0:
		return fmt.Sprintf("Found %d of the message's records; %s did not answer.", n, strings.Join(a.Unanswered, ", "))
	case n == 0 && a.Complete:
		return "The store has no record or message with this id. It was processed and deleted, its transaction was rolled back, " +
			"or it belongs to another store: this store cannot tell which."
	case n == 0:
		return fmt.Sprintf("No record has this id, and none of the first %d records is of a message with this id. "+
			"The store has more records: look at more of them, or ask with the id of a record.", a.Examined)
	case a.Complete && n == 1:
		return "The message has one record here."
	case a.Complete:
		return fmt.Sprintf("The message has %d records, one for each group.", n)
	default:
		return fmt.Sprintf("Found %d of the message's records; other groups may have more, because the search ended after %d records.",
			n, a.Examined)
	}
}
