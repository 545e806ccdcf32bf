package driver

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

var _ driver.Acker = (*Driver)(nil)

// freshFor is how long the driver takes it that there are still no notes. A note that was made since is looked at soon: its claim has set
// LookAt.
const freshFor = time.Second

// hasNotes reports whether there may be notes.
func (d *Driver) hasNotes() bool {
	asked := d.asked.Load()
	return d.noted.Load() >= asked-int64(freshFor) || time.Now().UnixNano()-asked > int64(freshFor)
}

// Ack deletes rows by their leases, outside of a transaction, and then opens the notes of their keys. If the process ends between
// the two, a claim looks at these notes when their LookAt comes. See driver.Acker.
func (d *Driver) Ack(ctx context.Context, leases []outmill.Lease, _ bool) (left []outmill.Lease, err error) {
	err = d.repeat(ctx, func() error {
		left = nil
		if !d.hasNotes() {
			deleted, err := d.deleteLeased(ctx, leases)
			if err != nil || deleted == len(leases) {
				return err
			}
		}
		left, err = d.ackAsRead(ctx, leases)
		return err
	})
	return left, err
}

// ackAsRead reads the rows first, and returns the leases of steps.
func (d *Driver) ackAsRead(ctx context.Context, leases []outmill.Lease) (left []outmill.Lease, err error) {
	ids := make([]outmill.WorkItemID, len(leases))
	for i, l := range leases {
		ids[i] = l.ID
	}
	t := &tx{d: d}
	rows, err := t.find(ctx, true, ids)
	if err != nil {
		return nil, err
	}
	found := make(map[outmill.WorkItemID]*driver.Row, len(rows))
	for i := range rows {
		found[rows[i].ID] = &rows[i]
	}
	var acked []outmill.Lease
	var open driver.Changes
	for _, l := range leases {
		r := found[l.ID]
		switch {
		case r == nil || r.Stage != driver.Leased || r.Claims != l.Claim || r.Owner != l.Owner.String():
		case !r.Step.IsZero():
			left = append(left, l)
		default:
			acked = append(acked, l)
			if r.Key != "" && t.state.Notes {
				open.Open = append(open.Open, driver.Note{Line: r.Line, Name: driver.KeyNote(r.Key)})
			}
		}
	}
	if len(acked) == 0 {
		return left, nil
	}
	if _, err := d.deleteLeased(ctx, acked); err != nil {
		return nil, err
	}
	return left, t.writeNotes(alone(ctx), &open)
}

// deleteLeased deletes the rows that have the leases and no step.
func (d *Driver) deleteLeased(ctx context.Context, leases []outmill.Lease) (deleted int, err error) {
	claims := map[int]bson.A{}
	for _, l := range leases {
		claims[l.Claim] = append(claims[l.Claim], uuid(l.ID))
	}
	var models []mongo.WriteModel
	for claim, ids := range claims {
		models = append(models, mongo.NewDeleteManyModel().SetFilter(bson.D{
			in("_id", ids), stageIs(driver.Leased), {Key: "claims", Value: claim}, {Key: "owner", Value: leases[0].Owner.String()},
			{Key: "step", Value: nil},
		}))
	}
	result, err := d.records.BulkWrite(alone(ctx), models, options.BulkWrite().SetOrdered(false))
	if err != nil {
		return 0, err
	}
	return int(result.DeletedCount), nil
}
