package mongo

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// lease leases the chosen records that are still due, and returns their number. It gives back
// records that it cannot read.
func (c *claim) lease(ctx context.Context, chosen choice) (int, error) {
	token := uuid(outmill.NewOwnerToken())
	records, err := c.leaseAs(ctx, chosen, token)
	if err != nil {
		_ = c.giveBack(ctx, chosen.ids(), token)
		return 0, err
	}
	if len(records) > 1 {
		records, err = c.withoutSuspects(ctx, records)
	}
	c.add(records)
	return len(records), err
}

// leaseAs leases the chosen records that are still due, and returns them in their order. If whole
// documents were read, it returns these without another read: the update checks that the claims,
// attempts, expiries and edits of each record are unchanged, so all that a handler sees is the same.
func (c *claim) leaseAs(ctx context.Context, chosen choice, token uuid) (records []*outmill.Record, err error) {
	now, err := c.s.now(ctx)
	if err != nil {
		return nil, err
	}
	models, whole := c.leasing(chosen, token)
	// Records that an interrupted update has leased are no longer due. The read by the token
	// finds them with the rest.
	err = again(ctx, func() error {
		result, err := c.s.records.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
		if err != nil {
			return err
		}
		if whole && int(result.ModifiedCount) == len(chosen.list) {
			records = c.asLeased(chosen, token, now)
			return nil
		}
		records, err = c.readBack(ctx, chosen, token)
		return err
	})
	return records, err
}

// asRead has the fields that an update requires to be unchanged.
type asRead struct {
	claims, attempts, expiries int
	leased                     bool
	// edits is -1 if the payload was not read.
	edits int
}

// leasing makes one update for all records that were read in the same state, which is nearly
// always all of them. whole means that whole documents were read.
func (c *claim) leasing(chosen choice, token uuid) (models []driver.WriteModel, whole bool) {
	whole = true
	ids := map[asRead]bson.A{}
	var order []asRead
	for _, r := range chosen.list {
		state := asRead{r.Claims, r.Attempts, r.Expiries, r.Stage == storekit.StageLeased, -1}
		if r.whole != nil {
			state.edits = r.whole.Edits
		}
		whole = whole && r.whole != nil && !state.leased
		if ids[state] == nil {
			order = append(order, state)
		}
		ids[state] = append(ids[state], r.ID)
	}
	for _, state := range order {
		stage := "$ne"
		if state.leased {
			stage = "$eq"
		}
		unchanged := append(in("_id", ids[state]), bson.E{Key: "claims", Value: state.claims},
			bson.E{Key: "attempts", Value: state.attempts}, bson.E{Key: "expiries", Value: state.expiries},
			bson.E{Key: "stage", Value: bson.D{{Key: stage, Value: storekit.StageLeased}}}, stillDue())
		if state.edits >= 0 {
			unchanged = append(unchanged, editedTimes(state.edits))
		}
		models = append(models, driver.NewUpdateManyModel().SetFilter(unchanged).SetUpdate(leased(c.req.Owner, token, c.req.Lease)))
	}
	return models, whole
}

// asLeased returns the chosen records as they are after the lease.
func (c *claim) asLeased(chosen choice, token uuid, now time.Time) []*outmill.Record {
	records := make([]*outmill.Record, len(chosen.list))
	for i, r := range chosen.list {
		d := *r.whole
		d.Stage, d.Owner, d.Token, d.AvailableAt = storekit.StageLeased, uuid(c.req.Owner), token,
			now.Add(ceil(c.req.Lease)).Truncate(time.Millisecond)
		d.Claims++
		records[i] = d.record()
	}
	return records
}

func (c *claim) readBack(ctx context.Context, chosen choice, token uuid) ([]*outmill.Record, error) {
	found, err := findAll[document](ctx, c.s.records,
		append(c.ofClaim(chosen.ids(), token), bson.E{Key: "stage", Value: storekit.StageLeased}), first(len(chosen.list), nil))
	if err != nil {
		return nil, err
	}
	at := make(map[uuid]int, len(chosen.list))
	for i, r := range chosen.list {
		at[r.ID] = i
	}
	slices.SortFunc(found, func(a, b document) int { return cmp.Compare(at[a.ID], at[b.ID]) })
	records := make([]*outmill.Record, len(found))
	for i := range found {
		records[i] = found[i].record()
	}
	return records, nil
}
