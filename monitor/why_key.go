package monitor

import (
	"bytes"
	"context"
	"fmt"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// neighbours are the pending records of a record's group and topic.
type neighbours struct {
	scanned
	// before counts those that became due earlier, sameKey those of them with the same key.
	before, sameKey int
	// waiting is the first earlier record of the key that was claimed and is not due yet.
	waiting *outmill.Record
}

func (w why) neighbours(ctx context.Context, r *outmill.Record) (neighbours, error) {
	var n neighbours
	query := outmill.ListQuery{Group: r.Group, Topic: r.Topic, Status: outmill.StatusPending}
	seen, err := walk(ctx, w.store, query, w.maxNeighbours, func(other *outmill.Record) bool {
		if other.ID == r.ID {
			return true
		}
		sameKey := r.Key != "" && other.Key == r.Key
		switch next := other.NextAttemptAt; {
		case next.IsZero(): // It is held back behind another record of its key.
		case next.After(w.now):
			if sameKey && other.Claims > 0 && n.waiting == nil && earlier(other, r) {
				n.waiting = other
			}
		case next.Before(r.NextAttemptAt) || next.Equal(r.NextAttemptAt) && earlier(other, r):
			n.before++
			if sameKey {
				n.sameKey++
			}
		}
		return true
	})
	n.scanned = seen
	return n, err
}

func earlier(a, b *outmill.Record) bool { return bytes.Compare(a.ID[:], b.ID[:]) < 0 }

// due explains a record that a claim may return.
func (w why) due(ctx context.Context, r *outmill.Record) ([]Reason, error) {
	n, err := w.neighbours(ctx, r)
	if err != nil {
		return nil, err
	}
	claimed := "has not been claimed yet"
	if r.Claims > 0 {
		claimed = "waits to be claimed again"
	}
	reason := Reason{Kind: "due", At: r.NextAttemptAt, Before: n.before, AtLeast: !n.complete}
	reason.Text = fmt.Sprintf("It has been due since %s and %s. %s", w.at(r.NextAttemptAt), claimed, n.text())
	if r.LastError != "" {
		reason.Text += " " + w.lastError(r)
	}
	reasons := []Reason{reason}
	if r.Key == "" {
		return reasons, nil
	}
	blockers, err := w.blockers(ctx, r, n)
	return append(reasons, blockers...), err
}

func (n neighbours) text() string {
	text := fmt.Sprintf("%s of its group and topic became due before it", times(n.before, "due record"))
	if !n.complete {
		text = fmt.Sprintf("At least %s; the count ended after %d records", text, n.examined)
	}
	if n.sameKey > 0 {
		text += fmt.Sprintf(", %d of them with its key", n.sameKey)
	}
	return text + "."
}

// held explains a record that the store itself holds back for an earlier one of its key.
func (w why) held(ctx context.Context, r *outmill.Record) ([]Reason, error) {
	n, err := w.neighbours(ctx, r)
	if err != nil {
		return nil, err
	}
	blockers, err := w.blockers(ctx, r, n)
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
func (w why) blockers(ctx context.Context, r *outmill.Record, n neighbours) ([]Reason, error) {
	var reasons []Reason
	leased, err := w.firstOfKey(ctx, r, outmill.StatusLeased, func(o *outmill.Record) bool { return o.LeaseUntil.After(w.now) })
	if err != nil {
		return nil, err
	}
	if leased != nil {
		reasons = append(reasons, Reason{Kind: "key_leased", Record: leased.ID, At: leased.LeaseUntil, Text: fmt.Sprintf(
			"Record %s of its key is leased by worker %s until %s; another worker that claims in order of keys waits for it.",
			leased.ID, leased.Owner, w.at(leased.LeaseUntil))})
	}
	if o := n.waiting; o != nil {
		text := fmt.Sprintf("Record %s of its key waits until %s", o.ID, w.at(o.NextAttemptAt))
		if o.Attempts > 0 {
			text += fmt.Sprintf(" for a retry after %s. %s A", times(o.Attempts, "failed attempt"), w.lastError(o))
		} else {
			text += ". A"
		}
		reasons = append(reasons, Reason{Kind: "key_waits", Record: o.ID, At: o.NextAttemptAt,
			Text: text + " reader that claims in order of keys waits for it, except with the policy KeySkip."})
	}
	parked, err := w.firstOfKey(ctx, r, outmill.StatusDead, func(o *outmill.Record) bool { return o.LastError == storekit.ParkedError })
	if err != nil || parked == nil {
		return reasons, err
	}
	return append(reasons, Reason{Kind: "key_parked", Record: parked.ID, Text: fmt.Sprintf(
		"Its key is parked: record %s of it is dead behind an earlier one. A reader with the policy KeyPark makes this record dead too.",
		parked.ID)}), nil
}

// firstOfKey returns the first record of r's group, topic and key with the status that is
// wanted, or nil. An index leads to them.
func (w why) firstOfKey(
	ctx context.Context, r *outmill.Record, status outmill.Status, wanted func(*outmill.Record) bool,
) (first *outmill.Record, err error) {
	query := outmill.ListQuery{Group: r.Group, Topic: r.Topic, Key: r.Key, Status: status}
	_, err = walk(ctx, w.store, query, w.maxNeighbours, func(other *outmill.Record) bool {
		if other.ID != r.ID && wanted(other) {
			first = other
		}
		return first == nil
	})
	return first, err
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
