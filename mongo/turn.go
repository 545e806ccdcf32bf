package mongo

import (
	"context"
	"time"

	"github.com/outmill/outmill/storekit"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// How turns at a line work is told at claims in order.

const (
	// firstTurn is how long a turn is at first. One that was too short for its claim
	// doubles, up to lastTurn.
	firstTurn = 2 * time.Second
	lastTurn  = time.Minute
	// A claim asks so often whether the turn is free, with pauses of about that time
	// that double. Claims are short; a reader that gets nothing polls soon.
	turnTries = 4
	turnPause = 5 * time.Millisecond
)

// turn is a turn at a line. over: it was confirmed, unless that was in a transaction
// that was not committed.
type turn struct {
	s     *Store
	line  line
	token uuid
	// touches is how often the line was touched when the turn began.
	touches int64
	over    bool
}

// turnDocument is a line's document among the locks.
type turnDocument struct {
	Token   uuid      `bson:"token"`
	Until   time.Time `bson:"until"`
	Touches int64     `bson:"claims"`
}

// awaitTurn takes the turn, and waits a moment for it if another process has it; nil is
// that it still has.
func (s *Store) awaitTurn(ctx context.Context, of line, token uuid, lasts time.Duration) (*turn, error) {
	waits := storekit.NewWaits(turnPause, turnPause<<turnTries)
	for try := 1; ; try++ {
		t, err := s.takeTurn(ctx, of, token, lasts)
		if err != nil || t != nil || try == turnTries {
			return t, err
		}
		if err := waits.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

// takeTurn changes nothing where another has the turn. A transaction that has touched
// the line, and whose process stopped, keeps it for as long as the server keeps that
// transaction: this does not wait for it.
func (s *Store) takeTurn(ctx context.Context, of line, token uuid, lasts time.Duration) (*turn, error) {
	own, cancel := context.WithTimeout(ctx, firstTurn)
	defer cancel()
	asked := time.Now()
	free := bson.D{{Key: "$not", Value: bson.A{bson.D{{Key: "$gt", Value: bson.A{"$until", "$$NOW"}}}}}}
	var found turnDocument
	err := s.locks.FindOneAndUpdate(own, where("_id", of), pipeline(bson.D{
		{Key: "token", Value: given(free, token, "$token")}, {Key: "until", Value: given(free, inTime(lasts), "$until")},
		{Key: "claims", Value: bson.D{{Key: "$ifNull", Value: bson.A{"$claims", int64(0)}}}},
	}), options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&found)
	switch {
	case driver.IsDuplicateKeyError(err), err != nil && ctx.Err() == nil && driver.IsTimeout(err):
		// A server that is busy may have written the turn before its time was over. The
		// next try, with the same token, then finds it taken by itself.
		return nil, nil
	case err != nil || found.Token != token:
		return nil, err
	}
	s.clock.set(found.Until.Add(-lasts), asked)
	return &turn{s: s, line: of, token: token, touches: found.Touches}, nil
}

// confirm ends the turn if it stands: its token is there, its end has not passed, and
// nobody has touched the line. It returns errContended where it does not stand.
func (t *turn) confirm(ctx context.Context) error {
	result, err := t.s.locks.UpdateOne(ctx,
		append(where("_id", t.line), bson.E{Key: "token", Value: t.token}, bson.E{Key: "claims", Value: t.touches},
			expr(bson.D{{Key: "$gt", Value: bson.A{"$until", "$$NOW"}}})), turnEnded())
	if err != nil {
		return err
	}
	if t.over = result.MatchedCount > 0; !t.over {
		return errContended
	}
	return nil
}

// stands has the transaction conflict with the claim that takes the turn next, and fails where
// one has.
func (t *turn) stands(ctx context.Context) error {
	result, err := t.s.locks.UpdateOne(ctx,
		append(where("_id", t.line), bson.E{Key: "token", Value: t.token}, expr(bson.D{{Key: "$gt", Value: bson.A{"$until", "$$NOW"}}})),
		bson.D{{Key: "$inc", Value: bson.D{{Key: "admissions", Value: int64(1)}}}})
	if err == nil && result.MatchedCount == 0 {
		err = errContended
	}
	return err
}

// giveBack ends the turn if it is still this one. If that fails it ends by itself.
func (t *turn) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortWithin)
	defer cancel()
	_, _ = t.s.locks.UpdateOne(ctx, append(where("_id", t.line), bson.E{Key: "token", Value: t.token}), turnEnded())
}

func turnEnded() bson.D {
	return bson.D{{Key: "$unset", Value: bson.D{{Key: "token", Value: ""}, {Key: "until", Value: ""}}}}
}
