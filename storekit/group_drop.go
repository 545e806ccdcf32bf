package storekit

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/outmill/outmill"
)

// DropAtOnce is the largest number of records that a step of a drop should give back or delete,
// where the engine sets no other bound.
const DropAtOnce = 1000

// Selections are the selections of topics of several groups.
type Selections []outmill.Topics

// Others returns the selections of all groups but this one.
func (t *RoutingTable) Others(group string) Selections {
	others := Selections{}
	for _, r := range t.Registrations {
		if r.Group != group {
			others = append(others, r.Topics)
		}
	}
	return others
}

// Match reports whether one of the selections has the topic.
func (s Selections) Match(topic string) bool {
	return slices.ContainsFunc(s, func(topics outmill.Topics) bool { return topics.Match(topic) })
}

// String returns the selections as a text for a note, which is never empty.
func (s Selections) String() string {
	// Lists of strings always marshal.
	text, _ := json.Marshal(s)
	return string(text)
}

// ParseSelections returns the selections of a text of [Selections.String].
func ParseSelections(text string) (Selections, error) {
	var s Selections
	err := json.Unmarshal([]byte(text), &s)
	return s, err
}

// GroupDrop drops a group in steps. A store provides the steps, and calls Run in its DropGroup.
// Each step is one transaction, ends with the context, and may be repeated.
//
//	registered ──Begin──► dropping ──End──► absent
//	                      │  ▲ GiveBack, Delete, DeleteSettled; a crash stays here, and Begin goes on
//	                      └──RegisterGroup──► registered, with what it still has
//
// Which topics other groups read is decided once, by Begin, which keeps it in a note. Otherwise
// a group that registers between an interrupted drop and the call that finishes it would have
// the rest deleted, although it never got these messages.
type GroupDrop struct {
	// Begin removes the group's registrations and workers, notes the selections of the other
	// groups ([RoutingTable.Others]), and returns them. If the group has no registration and a note of an
	// interrupted drop, the note stays, and Begin returns its selections. The note lists the
	// group as an ended one, and no sweep of [RegistrationExpiry] looks at it.
	Begin func(ctx context.Context) (Selections, error)
	// Topics returns the topics, or names of lines (LineName), of the group's records that are neither processed nor dead.
	Topics func(ctx context.Context) ([]string, error)
	// GiveBack takes a bounded number of the topic's records that are neither processed nor dead
	// from the group: from then on they are as if they were appended without a group. See
	// outmill.Inspector. It returns how many, and whether there may be more.
	GiveBack func(ctx context.Context, topic string) (done int, more bool, err error)
	// Delete deletes a bounded number of the topic's records that are neither processed nor dead.
	Delete func(ctx context.Context, topic string) (done int, more bool, err error)
	// DeleteSettled deletes a bounded number of processed and dead records of all topics.
	DeleteSettled func(ctx context.Context) (done int, more bool, err error)
	// End deletes the note, and what else the store keeps of the group.
	End func(ctx context.Context) error
}

// Run drops the group. After an error it returns what it has reached.
func (d GroupDrop) Run(ctx context.Context) (dropped outmill.Dropped, err error) {
	others, err := d.Begin(ctx)
	if err != nil {
		return dropped, err
	}
	for before := (outmill.Dropped{GivenBack: -1}); before != dropped; {
		before = dropped
		topics, err := d.Topics(ctx)
		if err != nil {
			return dropped, err
		}
		for _, topic := range topics {
			if err := d.dropTopic(ctx, topic, others, &dropped); err != nil {
				return dropped, err
			}
		}
	}
	if err := repeat(ctx, &dropped.Deleted, d.DeleteSettled); err != nil {
		return dropped, err
	}
	return dropped, d.End(ctx)
}

func (d GroupDrop) dropTopic(ctx context.Context, topic string, others Selections, dropped *outmill.Dropped) error {
	step, count := d.GiveBack, &dropped.GivenBack
	if of, _ := TopicOfLine(topic); others.Match(of) {
		step, count = d.Delete, &dropped.Deleted
	}
	return repeat(ctx, count, func(ctx context.Context) (int, bool, error) { return step(ctx, topic) })
}

// repeat runs the step until it has done all.
func repeat(ctx context.Context, count *int, step func(ctx context.Context) (int, bool, error)) error {
	for more := true; more; {
		var n int
		var err error
		n, more, err = step(ctx)
		if *count += n; err != nil {
			return err
		}
	}
	return nil
}
