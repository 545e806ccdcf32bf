package monitor

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// line returns the first records of each kind of the record's group and topic. known is false for a store
// that lacks the role.
func (w why) line(ctx context.Context, r *outmill.Record) (line storekit.Waiting, known bool, err error) {
	reader, known := outmill.As[storekit.WaitingReader](w.store)
	if !known {
		return line, false, nil
	}
	line, err = reader.FirstWaiting(ctx, r.Group, r.Topic, min(w.maxNeighbours, roles.MaxExamined))
	return line, true, err
}

func earlier(a, b *outmill.Record) bool { return bytes.Compare(a.ID[:], b.ID[:]) < 0 }

// due explains a record that a claim may return.
func (w why) due(ctx context.Context, r *outmill.Record) ([]Reason, error) {
	line, known, err := w.line(ctx, r)
	if err != nil {
		return nil, err
	}
	claimed := "has not been claimed yet"
	if r.Claims > 0 {
		claimed = "waits to be claimed again"
	}
	reason := Reason{Kind: "due", At: r.NextAttemptAt, AtLeast: true}
	reason.Text = fmt.Sprintf("It has been due since %s and %s.", w.at(r.NextAttemptAt), claimed)
	if known {
		var sameKey int
		reason.Before, sameKey, reason.AtLeast = line.Before(r)
		reason.Text += " " + before(reason.Before, sameKey, reason.AtLeast)
	}
	if r.LastError != "" {
		reason.Text += " " + w.lastError(r)
	}
	reasons := []Reason{reason}
	if r.Key == "" {
		return reasons, nil
	}
	blockers, err := w.blockers(ctx, r, line)
	return append(reasons, blockers...), err
}

func before(n, sameKey int, atLeast bool) string {
	text := times(n, "due record") + " of its group and topic became due before it"
	if atLeast {
		text = "At least " + text + "; the count ended there"
	}
	if sameKey > 0 {
		text += fmt.Sprintf(", %d of them with its key", sameKey)
	}
	return text + "."
}

// held explains a record that the store itself holds back for an earlier one of its key.
func (w why) held(ctx context.Context, r *outmill.Record) ([]Reason, error) {
	line, _, err := w.line(ctx, r)
	if err != nil {
		return nil, err
	}
	blockers, err := w.blockers(ctx, r, line)
	if err != nil {
		return nil, err
	}
	text := "An ordered claim holds it back behind an earlier record of its key " + quote(r.Key) + "."
	if len(blockers) == 0 {
		text += " Nothing blocks the key now, as far as this search came: a later ordered claim returns it."
	}
	return append([]Reason{{Kind: "held", Text: text}}, blockers...), nil
}

// blockers are the records that stop the key of r for readers that claim in order.
func (w why) blockers(ctx context.Context, r *outmill.Record, line storekit.Waiting) ([]Reason, error) {
	var reasons []Reason
	leased, parked, err := w.leasedAndParked(ctx, r)
	if err != nil {
		return nil, err
	}
	if leased != nil {
		reasons = append(reasons, Reason{Kind: "key_leased", Record: leased.ID, At: leased.LeaseUntil, Text: fmt.Sprintf(
			"Record %s of its key is leased by worker %s until %s; another worker that claims in order of keys waits for it.",
			leased.ID, leased.Owner, w.at(leased.LeaseUntil))})
	}
	waiting, err := w.waitingOfKey(ctx, r, line)
	if err != nil {
		return nil, err
	}
	if o := waiting; o != nil {
		text := fmt.Sprintf("Record %s of its key waits until %s", o.ID, w.at(o.NextAttemptAt))
		if o.Attempts > 0 {
			text += fmt.Sprintf(" for a retry after %s. %s A", times(o.Attempts, "failed attempt"), w.lastError(o))
		} else {
			text += ". A"
		}
		reasons = append(reasons, Reason{Kind: "key_waits", Record: o.ID, At: o.NextAttemptAt,
			Text: text + " reader that claims in order of keys waits for it, except with the policy KeySkip."})
	}
	if parked == nil {
		return reasons, nil
	}
	return append(reasons, Reason{Kind: "key_parked", Record: parked.ID, Text: fmt.Sprintf(
		"Its key is parked: record %s of it is dead behind an earlier one. A reader with the policy KeyPark makes this record dead too.",
		parked.ID)}), nil
}

// waitingOfKey returns the first earlier record of r's key that was claimed and is not due yet, or nil.
func (w why) waitingOfKey(ctx context.Context, r *outmill.Record, line storekit.Waiting) (*outmill.Record, error) {
	var first storekit.WaitingRecord
	for _, o := range line.All() {
		isBefore := bytes.Compare(o.ID[:], r.ID[:]) < 0 && (first.ID.IsZero() || bytes.Compare(o.ID[:], first.ID[:]) < 0)
		if o.Stage == storekit.StageWaiting && o.Key == r.Key && !o.IsDue(line.Now) && isBefore {
			first = o
		}
	}
	if first.ID.IsZero() {
		return nil, nil
	}
	found, err := w.store.Get(ctx, first.ID)
	if errors.Is(err, outmill.ErrNotFound) || err == nil && found.Status != outmill.StatusPending {
		return nil, nil // It was settled in the meantime.
	}
	return found, err
}

// leasedAndParked returns the first other record of r's group, topic and key that is leased, and the first that is parked, or nil. One
// search finds both, because no index leads to them.
func (w why) leasedAndParked(ctx context.Context, r *outmill.Record) (leased, parked *outmill.Record, err error) {
	query := outmill.ListQuery{Group: r.Group, Topic: r.Topic, Key: r.Key}
	_, err = walk(ctx, w.store, query, w.maxNeighbours, func(o *outmill.Record) bool {
		switch {
		case o.ID == r.ID:
		case leased == nil && o.Status == outmill.StatusLeased && o.LeaseUntil.After(w.now):
			leased = o
		case parked == nil && o.Status == outmill.StatusDead && o.LastError == storekit.ParkedError:
			parked = o
		}
		return leased == nil || parked == nil
	})
	return leased, parked, err
}

// parked explains a record that went dead with an earlier one of its key.
func (w why) parked(ctx context.Context, r *outmill.Record) ([]Reason, error) {
	var heads int
	var head *outmill.Record
	query := outmill.ListQuery{Group: r.Group, Topic: r.Topic, Key: r.Key, Status: outmill.StatusDead}
	seen, err := walk(ctx, w.store, query, w.maxNeighbours, func(other *outmill.Record) bool {
		if other.LastError != storekit.ParkedError && other.ID != r.ID && earlier(other, r) {
			heads, head = heads+1, other
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	const begin = "It is dead, because it is parked with its key behind an earlier record that went dead"
	const end = " Requeue releases the parked records of the key together."
	switch {
	case head == nil && seen.complete:
		return []Reason{{Kind: "parked", Text: begin + ". That record is no longer dead in this store." + end}}, nil
	case head == nil:
		return []Reason{{Kind: "parked", Text: fmt.Sprintf(
			"%s. It is not among the first %d dead records of the group and topic.%s", begin, seen.examined, end)}}, nil
	case heads > 1:
		return []Reason{{Kind: "parked", Record: head.ID, Text: fmt.Sprintf(
			"%s. %d records of the key are dead before it, the last of them is %s. %s%s", begin, heads, head.ID, w.lastError(head), end)}}, nil
	}
	return []Reason{{Kind: "parked", Record: head.ID, Text: fmt.Sprintf("%s: %s. %s%s", begin, head.ID, w.lastError(head), end)}}, nil
}
