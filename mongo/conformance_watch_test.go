package mongo_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
)

// line is a key of a topic of a group.
type line struct{ Grp, Topic, Key string }

// Watch searches for held records without a lane, which no claim would ever find.
func (h harness) Watch(ctx context.Context, fault func(error)) {
	for ctx.Err() == nil {
		err := h.heldWithoutLane(ctx)
		var conflict driver.ServerError
		if ctx.Err() == nil && err != nil && !errors.As(err, &conflict) {
			fault(err)
		}
		_ = pause(ctx, 20*time.Millisecond)
	}
}

func (h harness) heldWithoutLane(ctx context.Context) error {
	session, err := h.store.Client().StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		var lanes []struct {
			ID line `bson:"_id"`
		}
		var held []line
		err := errors.Join(h.find(ctx, "lanes", bson.D{}, &lanes), h.find(ctx, "records", bson.D{{Key: "stage", Value: 1}}, &held))
		if err != nil {
			return nil, err
		}
		has := map[line]bool{}
		for _, l := range lanes {
			has[l.ID] = true
		}
		for _, r := range held {
			if !has[r] {
				return nil, fmt.Errorf("a held record without a lane: %+v", r)
			}
		}
		return nil, nil
	}, options.Transaction().SetReadConcern(readconcern.Snapshot()))
	return err
}

func (h harness) find(ctx context.Context, from string, filter bson.D, found any) error {
	cursor, err := h.store.collection(from).Find(ctx, filter)
	if err != nil {
		return err
	}
	return cursor.All(ctx, found)
}

// AtRest returns the lanes without held records.
func (h harness) AtRest() error {
	var left []bson.Raw
	if err := h.find(h.t.Context(), "lanes", bson.D{}, &left); err != nil || len(left) == 0 {
		return err
	}
	return fmt.Errorf("%d lanes remain that hold nothing, such as %s", len(left), left[0])
}
