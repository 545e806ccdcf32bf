package monitor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const (
	// linesSearched bounds the groups and topics in which Doctor looks for records that hold up others.
	linesSearched = 20
	// linesAtStandstill does the same for Standstill.
	linesAtStandstill = 5
	// waitingSearched is how many records of each kind Doctor looks at in each of them.
	waitingSearched = 1000
	// failsAgain is after how many failed attempts a record fails again and again.
	failsAgain = 3
)

// suspect is a record that holds up others, or itself, of a row of the counts.
type suspect struct {
	row    outmill.TopicStats
	record storekit.WaitingRecord
	// others counts further records of the row that are like it.
	others int
	// behind counts the due records of its key behind it; more says that there may be more.
	behind int
	more   bool
}

// Standstill names what keeps the records of these counts from being handled, as [Doctor] does, and nothing
// else: groups without a worker, handlers that hang, ended leases that nobody takes, and records that fail again
// and again. The counts are those of Stats. Its cost is that of Groups and of a look at no more than 5 groups and
// topics, those whose records have been due longest. It uses of the config what Doctor uses for these.
//
// The errors are ErrInvalidConfig and those of Groups. If some of several stores fail, the answer is that of the
// others.
func Standstill(ctx context.Context, store outmill.Inspector, stats []outmill.TopicStats, config DoctorConfig) ([]Problem, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	groups, err := store.Groups(ctx)
	if storekit.NoneAnswered(err) {
		return nil, err
	}
	c := tally{stats, groups, time.Now()}
	d := &doctor{store: store, config: config}
	d.add(some(c.unseen(config.Unseen), "groups")...)
	d.add(some(c.hanging(config.Unseen, config.MaxHandling), "handlers")...)
	// Where nothing is late, and nothing waits for a retry, nothing stands still.
	c.stats = slices.DeleteFunc(slices.Clone(stats), func(row outmill.TopicStats) bool {
		return row.Delayed == 0 && (row.OldestDue.IsZero() || c.now.Sub(row.OldestDue) <= config.EndedLease)
	})
	err = d.waiting(ctx, c, linesAtStandstill)
	return d.report.Problems, err
}

// waiting names the records whose lease has ended and that nobody takes, and those that fail again and
// again, in up to so many groups and topics.
func (d *doctor) waiting(ctx context.Context, c tally, most int) error {
	rows := slices.DeleteFunc(slices.Clone(c.stats), func(row outmill.TopicStats) bool {
		return row.Group == "" || row.OldestDue.IsZero() && row.Delayed == 0 && row.Leased == 0
	})
	reader, ok := outmill.As[storekit.WaitingReader](d.store)
	if !ok && len(rows) > 0 {
		d.skip("Ended leases and records that fail again and again were not searched for: the store lacks the role storekit.WaitingReader.")
		return nil
	}
	// Those that have been due longest come first, and then those where nothing is due.
	slices.SortStableFunc(rows, func(a, b outmill.TopicStats) int {
		return cmp.Or(compareBool(a.OldestDue.IsZero(), b.OldestDue.IsZero()), a.OldestDue.Compare(b.OldestDue),
			cmp.Compare(b.Delayed, a.Delayed))
	})
	if len(rows) > most {
		d.skip("Ended leases and records that fail again and again were searched for in %d of %d groups and topics, those whose records have "+
			"been due longest.", most, len(rows))
		rows = rows[:most]
	}
	var ended, failing []suspect
	for _, row := range rows {
		line, err := reader.FirstWaiting(d.inStoreOf(ctx, row), row.Group, row.Topic, waitingSearched)
		if err != nil {
			d.skip("Ended leases and records that fail again and again were not searched for in %s, topic %s: %v",
				groupOf(row), quote(row.Topic), err)
			continue
		}
		ended = append(ended, endedIn(row, line, d.config.EndedLease)...)
		failing = append(failing, failingIn(row, line)...)
	}
	slices.SortStableFunc(failing, func(a, b suspect) int {
		return cmp.Or(cmp.Compare(b.behind, a.behind), cmp.Compare(b.record.Attempts, a.record.Attempts))
	})
	if err := d.each(ctx, ended, "groups and topics", d.endedLease); err != nil {
		return err
	}
	return d.each(ctx, failing, "keys", d.failing)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// inStoreOf directs calls to the store of the row.
func (d *doctor) inStoreOf(ctx context.Context, row outmill.TopicStats) context.Context {
	return storekit.InStoreOf(ctx, d.store, &outmill.Record{Store: row.Store})
}

// each adds the problems of the first suspects, and one that says how many are left out. It asks the
// store only for those records.
func (d *doctor) each(
	ctx context.Context, suspects []suspect, of string, problem func(s suspect, r *outmill.Record) Problem,
) error {
	problems := make([]Problem, 0, len(suspects))
	for _, s := range suspects {
		if len(problems) >= mostOfAKind {
			// Only the number of these is used, and the last one's kind.
			problems = append(problems, Problem{})
			continue
		}
		r, err := d.store.Get(d.inStoreOf(ctx, s.row), s.record.ID)
		switch {
		case errors.Is(err, outmill.ErrNotFound):
		case err != nil:
			return err
		case r.Status == outmill.StatusLeased || r.Status == outmill.StatusPending:
			problems = append(problems, problem(s, r))
		}
	}
	d.add(some(problems, of)...)
	return nil
}

// endedIn returns the record of the row whose lease ended longest ago, if that is longer than the limit.
func endedIn(row outmill.TopicStats, line storekit.Waiting, limit time.Duration) []suspect {
	found := suspect{row: row, others: -1}
	for _, r := range line.All() {
		if r.Stage != storekit.StageLeased || line.Now.Sub(r.DueAt) <= limit {
			continue
		}
		if found.others++; found.others == 0 || r.DueAt.Before(found.record.DueAt) {
			found.record = r
		}
	}
	if found.others < 0 {
		return nil
	}
	return []suspect{found}
}

func (d *doctor) endedLease(s suspect, r *outmill.Record) Problem {
	text := fmt.Sprintf("Record %s of group %s and topic %s was with worker %s, and its lease, number %d, ended at %s without an "+
		"outcome. Nobody has taken it since.", r.ID, quote(s.row.Group), quote(s.row.Topic), r.Owner, r.Claims,
		s.record.DueAt.Format(time.RFC3339))
	if s.others > 0 {
		text += fmt.Sprintf(" The same holds for %s.", times(s.others, "more record"))
	}
	return Problem{
		Kind: "lease_ended", Severity: Warning, Store: s.row.Store, Group: s.row.Group, Topic: s.row.Topic, Subject: r.ID.String(),
		Since: s.record.DueAt, Text: text,
		Remedy: "Start a worker of the group, or find out why the one that runs claims nothing (outmill groups list, its log): claims return " +
			"such records, and the janitor of each subscriber and forwarder ends their leases once in a round. Without both, outmill.Queue's " +
			"ReapExpired does.",
	}
}

// failingIn returns the first record of each key that fails again and again, and of those without a key
// the one with the most attempts.
func failingIn(row outmill.TopicStats, line storekit.Waiting) []suspect {
	heads := map[string]*suspect{}
	var keys []string
	for _, r := range line.All() {
		if r.Attempts < failsAgain || r.Stage == storekit.StageAside {
			continue
		}
		head := heads[r.Key]
		if head == nil {
			heads[r.Key] = &suspect{row: row, record: r}
			keys = append(keys, r.Key)
			continue
		}
		head.others++
		isFirst := bytes.Compare(r.ID[:], head.record.ID[:]) < 0
		if r.Key != "" && isFirst || r.Key == "" && (r.Attempts > head.record.Attempts || r.Attempts == head.record.Attempts && isFirst) {
			head.record = r
		}
	}
	slices.Sort(keys)
	found := make([]suspect, len(keys))
	for i, key := range keys {
		found[i] = *heads[key]
		if key != "" {
			found[i].behind, found[i].more = line.Behind(found[i].record)
		}
	}
	return found
}

func (d *doctor) failing(s suspect, r *outmill.Record) Problem {
	p := Problem{
		Kind: "fails_again", Severity: Warning, Store: s.row.Store, Group: s.row.Group, Topic: s.row.Topic, Subject: r.ID.String(),
		Since: later(r.CreatedAt, r.DueAt).UTC(),
		Remedy: "Repair what the last error names; the next attempt then succeeds by itself. If the message itself is at fault, edit it, or " +
			"fail it for good with outmill.Permanent in its handler. outmill why explains the record.",
	}
	p.Text = fmt.Sprintf("A record of group %s and topic %s fails again and again: record %s has had %s.",
		quote(s.row.Group), quote(s.row.Topic), r.ID, times(r.Attempts, "failed attempt"))
	if r.Key != "" {
		p.Text = fmt.Sprintf("Key %s of group %s and topic %s fails again and again: its record %s has had %s.",
			quote(r.Key), quote(s.row.Group), quote(s.row.Topic), r.ID, times(r.Attempts, "failed attempt"))
	}
	if !r.NextAttemptAt.IsZero() && r.Status == outmill.StatusPending {
		p.Text += fmt.Sprintf(" It is tried again at %s.", r.NextAttemptAt.UTC().Format(time.RFC3339))
	}
	if r.LastError != "" {
		p.Text += " Last error: " + quote(r.LastError) + "."
	}
	if s.behind > 0 {
		p.Text += " " + s.heldUp() + " Readers that claim in order of keys wait for it."
	}
	if r.Key == "" && s.others > 0 {
		p.Text += fmt.Sprintf(" The same holds for %s without a key.", times(s.others, "more record"))
	}
	return p
}

// heldUp says how many due records of the key are behind the record.
func (s suspect) heldUp() string {
	text := times(s.behind, "due record") + " of its key "
	if s.more {
		text = "At least " + text
	}
	if s.behind == 1 {
		return text + "is behind it."
	}
	return text + "are behind it."
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
