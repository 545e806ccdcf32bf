package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

const unreadableRemedy = "outmill show lists the readable parts of the record. If its payload or its metadata cannot be read, " +
	"set both with outmill edit. Then requeue the record (outmill requeue). " +
	"If it goes dead again, publish its message again and delete the record (outmill delete). " +
	"If nobody has changed the record by hand, check the disk of the database."

// unreadable names the dead records that a claim could not decode, in up to so many groups and topics, those with the
// most dead records. A search for them looks at no more than roles.MaxExamined records of each.
func (d *doctor) unreadable(ctx context.Context, c tally, most int) error {
	rows := slices.DeleteFunc(slices.Clone(c.stats), func(row outmill.TopicStats) bool { return row.Group == "" || row.Dead == 0 })
	operator, ok := outmill.As[roles.Repairs](d.store)
	if !ok && len(rows) > 0 {
		d.skip("Records that cannot be read were not searched for: the store lacks the role roles.Repairs.")
		return nil
	}
	slices.SortStableFunc(rows, func(a, b outmill.TopicStats) int { return cmp.Compare(b.Dead, a.Dead) })
	if len(rows) > most {
		d.skip("Records that cannot be read were searched for in %d of %d groups and topics, those with the most dead records.", most, len(rows))
		rows = rows[:most]
	}
	var problems []Problem
	for _, row := range rows {
		page, err := operator.Find(d.inStoreOf(ctx, row), outmill.ListQuery{
			Group: row.Group, Topic: row.Topic, Status: outmill.StatusDead, ErrorText: storekit.UnreadableError, Limit: waitingSearched,
		})
		if err != nil {
			d.skip("Records that cannot be read were not searched for in %s, topic %s: %v", groupOf(row), quote(row.Topic), err)
			continue
		}
		for _, r := range page.Records {
			if len(problems) >= mostOfAKind {
				// Only the number of these is used, and the last one's kind.
				problems = append(problems, Problem{})
				continue
			}
			problem, found, err := d.unreadableRecord(ctx, row, r)
			if err != nil {
				return err
			}
			if found {
				problems = append(problems, problem)
			}
		}
	}
	d.add(some(problems, "records")...)
	return nil
}

// unreadableRecord is the problem of a dead record that a claim could not decode. found is false if it is gone since.
func (d *doctor) unreadableRecord(ctx context.Context, row outmill.TopicStats, head *outmill.Record) (p Problem, found bool, err error) {
	// A list does not read the payload, which may be what cannot be read.
	r, err := d.store.Get(d.inStoreOf(ctx, row), head.ID)
	switch {
	case errors.Is(err, outmill.ErrNotFound):
		return p, false, nil
	case err != nil:
		return p, false, err
	case r.Status != outmill.StatusDead || !strings.HasPrefix(r.LastError, storekit.UnreadableError):
		return p, false, nil
	}
	p = Problem{
		Kind: "record_unreadable", Severity: Warning, Store: row.Store, Group: row.Group, Topic: row.Topic, Subject: r.ID.String(),
		Text: fmt.Sprintf("Record %s of group %s and topic %s could not be read, so a claim has made it dead, and nobody has handled it. %s.",
			r.ID, quote(row.Group), quote(row.Topic), quote(r.LastError)),
		Remedy: unreadableRemedy,
	}
	if r.Unreadable == "" {
		p.Text += " It can be read now."
		p.Remedy = "Requeue the record (outmill requeue), or delete it. If nobody has changed it by hand, check the disk of the database."
	} else {
		p.Text += " It still cannot be read: " + r.Unreadable + "."
	}
	return p, true, nil
}
