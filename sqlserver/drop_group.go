package sqlserver

import (
	"context"
	"database/sql"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const (
	// sqlBeginDrop first updates the row of the generation, so that no other process changes the
	// registrations before the transaction ends.
	sqlBeginDrop = `UPDATE [dbo].[OutboxMeta] SET Generation = Generation + 1 WHERE OnlyRow = 1;
SELECT CAST(SYSUTCDATETIME() AS DATETIME2(6));
SELECT Others FROM [dbo].[OutboxEnding] WHERE GroupName = ` + groupName + ` AND Others IS NOT NULL`

	// sqlForgetGroup removes the registrations, and notes that the group is being dropped. The janitor
	// does not look at the note.
	sqlForgetGroup = `UPDATE [dbo].[OutboxMeta] SET Generation = Generation + 1 WHERE OnlyRow = 1;
DELETE FROM [dbo].[OutboxGroup] WHERE GroupName = ` + groupName + `;
DELETE FROM [dbo].[OutboxWorker] WHERE GroupName = ` + groupName + `;
DELETE FROM [dbo].[OutboxEnding] WHERE GroupName = ` + groupName + `;
INSERT [dbo].[OutboxEnding] (GroupName, EndedAt, LookAt, Empty, Others)
    VALUES (@group, SYSUTCDATETIME(), CAST('9999-12-31' AS DATETIME2(6)), 0, @others)`

	sqlForgetDrop = `DELETE FROM [dbo].[OutboxEnding] WHERE GroupName = ` + groupName + ` AND Others IS NOT NULL`
)

// DropGroup removes the group's registrations, and gives back or deletes its records, 900 in a
// transaction. See outmill.Inspector. It does not see records of transactions that are still open. Another call
// removes these.
func (s *Store) DropGroup(ctx context.Context, group string) (outmill.Dropped, error) {
	const operation = "drop group"
	group = storekit.GroupOf(group)
	if err := storekit.CheckGroup(group); err != nil {
		return outmill.Dropped{}, s.explain(ctx, operation, err)
	}
	d := &drop{s: s, operation: operation, group: group}
	dropped, err := storekit.GroupDrop{Begin: d.begin, Topics: d.topics, GiveBack: d.giveBack, Delete: d.delete,
		DeleteSettled: d.deleteSettled, End: d.end}.Run(ctx)
	if dropped.GivenBack > 0 {
		s.notifier.Notify()
	}
	return dropped, err
}

// drop has the steps of a drop.
type drop struct {
	s                *Store
	operation, group string
	// before is when the drop began. If the group is registered again during the call, its new
	// records stay.
	before time.Time
}

func (d *drop) begin(ctx context.Context) (others storekit.Selections, err error) {
	name := named("group", d.group)
	err = d.s.write(ctx, d.operation, func(ctx context.Context, tx *sql.Tx) error {
		var noted []string
		table := &storekit.RoutingTable{}
		err := d.s.do(ctx, tx, call{template: sqlBeginDrop + ";\n" + sqlGroups, args: []any{name},
			sets: []reader{numbers(&d.before), texts(&noted), registrations(table)}})
		if err != nil {
			return err
		}
		if len(noted) > 0 && !table.Has(d.group) {
			others, err = storekit.ParseSelections(noted[0])
			return err
		}
		others = table.Others(d.group)
		return d.s.do(ctx, tx, call{template: sqlForgetGroup, args: []any{name, named("others", others.String())}})
	})
	return others, err
}

func (d *drop) topics(ctx context.Context) (topics []string, err error) {
	err = d.s.run(ctx, d.operation, call{
		template: sqlUndelivered, args: []any{named("group", d.group)},
		reset: func() { topics = nil }, sets: []reader{texts(&topics)},
	})
	return topics, err
}

func (d *drop) giveBack(ctx context.Context, topic string) (done int, more bool, err error) {
	return d.step(ctx, topic, true)
}

func (d *drop) delete(ctx context.Context, topic string) (done int, more bool, err error) {
	return d.step(ctx, topic, false)
}

// deleteSettled passes no topic: a topic is never empty.
func (d *drop) deleteSettled(ctx context.Context) (done int, more bool, err error) {
	return d.step(ctx, "", false)
}

func (d *drop) step(ctx context.Context, topic string, back bool) (done int, more bool, err error) {
	var found int
	var counted []outmill.JoinID
	err = d.s.run(ctx, d.operation, call{
		template: "[dbo].[Outbox_DropRecords]",
		args: []any{named("Group", d.group), named("Topic", topic), named("Back", back),
			named("Before", d.before.UTC().Format(textOfTime)), named("Limit", maxAtOnce)},
		reset: func() { counted = nil },
		sets:  []reader{numbers(&found, &done), joinIDs(&counted)},
	})
	if err != nil {
		return 0, false, err
	}
	d.s.hurry(ctx, counted)
	return done, found == maxAtOnce, nil
}

// end deletes the lanes last, and only those without records. A lane without records does no harm, but held
// records without their lane would wait for ever.
func (d *drop) end(ctx context.Context) error {
	var topics []string
	err := d.s.run(ctx, d.operation, call{
		template: sqlForgetDrop + ";\n" + sqlTopicsOfLanes, args: []any{named("group", d.group)},
		reset: func() { topics = nil }, sets: []reader{texts(&topics)},
	})
	if err != nil {
		return err
	}
	return d.s.dropLanes(ctx, d.operation, d.group, topics)
}
