package next

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

var _ driver.Acker = (*Driver)(nil)

// Ack deletes rows by their leases outside of a transaction, and then opens the notes of their keys. If the process ends between the two,
// a claim looks at these notes when their LookAt comes. See driver.Acker.
func (d *Driver) Ack(ctx context.Context, leases []outmill.Lease, _ bool) (left []outmill.Lease, err error) {
	ids := make([]outmill.WorkItemID, len(leases))
	for i, l := range leases {
		ids[i] = l.ID
	}
	err = d.repeat(ctx, func() error {
		left = nil
		t := &tx{d: d}
		rows, err := t.find(ctx, true, ids)
		if err != nil {
			return err
		}
		found := make(map[outmill.WorkItemID]*driver.Row, len(rows))
		for i := range rows {
			found[rows[i].ID] = &rows[i]
		}
		claims := map[int]bson.A{}
		var open driver.Changes
		for _, l := range leases {
			r := found[l.ID]
			switch {
			case r == nil || r.Stage != driver.Leased || r.Claims != l.Claim || r.Owner != l.Owner.String():
			case !r.Step.IsZero():
				left = append(left, l)
			default:
				claims[l.Claim] = append(claims[l.Claim], uuid(l.ID))
				if r.Key != "" && t.state.Notes {
					open.Open = append(open.Open, driver.Note{Line: r.Line, Name: driver.KeyNote(r.Key)})
				}
			}
		}
		var models []mongo.WriteModel
		for claim, ids := range claims {
			models = append(models, mongo.NewDeleteManyModel().SetFilter(bson.D{
				in("_id", ids), stageIs(driver.Leased), {Key: "claims", Value: claim}, {Key: "owner", Value: leases[0].Owner.String()},
				{Key: "step", Value: nil},
			}))
		}
		if len(models) == 0 {
			return nil
		}
		if _, err := d.records.BulkWrite(alone(ctx), models, options.BulkWrite().SetOrdered(false)); err != nil {
			return err
		}
		return t.writeNotes(alone(ctx), &open)
	})
	return left, err
}
