package mongo

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/storekit"
)

// The comment on claims in order explains turns.

const (
	// firstTurn is the initial length of a turn. If a claim takes longer than its turn, the
	// length doubles, up to lastTurn.
	firstTurn = 2 * time.Second
	lastTurn  = time.Minute
	// turnTries bounds the attempts to take the turn. The pause between them starts at about
	// turnPause, and doubles. The pauses are short, because claims are short and a reader that
	// gets nothing polls soon.
	turnTries = 4
	turnPause = 5 * time.Millisecond
)

// turn is a turn at a topic of a group. over means that it was confirmed, unless a transaction
// that confirmed it was not committed.
type turn struct {
	s     *Store
	line  line
	trail *trail
	token uuid
	// until is when the turn ends. The line may have the token again later, if the server gets an
	// earlier take after other claims; until differs then.
	until time.Time
	// touches is how often the line had been touched when the turn began.
	touches int64
	over    bool
	// doubtful means that the claim does not know the effect of one of its takes: the server may
	// have taken the turn, or may still take it.
	doubtful bool
	// doubts is how many doubtful turns of the line have ended, as far as this process knows.
	doubts int64
}

// turnDocument is the line's document in the collection locks.
type turnDocument struct {
	Token   uuid      `bson:"token"`
	Until   time.Time `bson:"until"`
	Touches int64     `bson:"claims"`
	Doubts  int64     `bson:"doubts"`
}

// awaitTurn takes the turn. It waits for a moment if another process has it, and returns nil if
// that process still has it then.
func (s *Store) awaitTurn(ctx context.Context, of line, token uuid, trail *trail) (*turn, error) {
	t := &turn{s: s, line: of, trail: trail, token: token, doubts: trail.doubtsSeen()}
	waits := storekit.NewWaits(turnPause, turnPause<<turnTries)
	for try := 1; ; try++ {
		known := t.doubts
		taken, err := t.take(ctx, trail.turnFor(s.turnFor))
		if taken {
			return t, nil
		}
		if err == nil && try < turnTries && t.doubts == known {
			err = waits.Wait(ctx)
		}
		if err != nil || try == turnTries {
			if t.doubtful {
				t.giveBack(ctx)
			}
			return nil, err
		}
	}
}

// take changes nothing if another process has the turn, or if more doubtful turns have ended than
// this process knows of. take does not wait for an open transaction that has touched the line. If
// the process of that transaction has stopped, the line stays blocked until the server aborts the
// transaction.
func (t *turn) take(ctx context.Context, lasts time.Duration) (taken bool, err error) {
	own, cancel := context.WithTimeout(ctx, firstTurn)
	defer cancel()
	asked, known := time.Now(), t.doubts
	free := bson.D{{Key: "$not", Value: bson.A{bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: "$gt", Value: bson.A{"$until", "$$NOW"}}}, bson.D{{Key: "$gt", Value: bson.A{"$doubts", known}}},
	}}}}}}
	var found turnDocument
	err = t.s.locks.FindOneAndUpdate(own, where("_id", t.line), pipeline(bson.D{
		{Key: "token", Value: given(free, t.token, "$token")}, {Key: "until", Value: given(free, inTime(lasts), "$until")},
		{Key: "claims", Value: bson.D{{Key: "$ifNull", Value: bson.A{"$claims", int64(0)}}}},
	}), options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&found)
	switch {
	case driver.IsDuplicateKeyError(err):
		return false, nil
	case err != nil:
		t.doubtful = t.doubtful || mayHaveWritten(own, err)
		if ctx.Err() == nil && mongoerr.IsTimeout(err) {
			// A busy server may write the turn after our time ran out. The next attempt, which has
			// the same token, then finds the turn taken by that write.
			err = nil
		}
		return false, err
	case found.Doubts > known:
		t.doubts = found.Doubts
		t.trail.sawDoubts(found.Doubts)
		return false, nil
	case found.Token != t.token:
		return false, nil
	}
	if !t.doubtful {
		// Otherwise an earlier take may have written the turn's end.
		t.s.clock.set(found.Until.Add(-lasts), asked)
	}
	t.until, t.touches = found.Until, found.Touches
	return true, nil
}

// confirm ends the turn if it is still valid: the line has its token, its end has not passed, and
// nobody has touched the line. Otherwise it returns errContended.
func (t *turn) confirm(ctx context.Context) error {
	result, err := t.s.locks.UpdateOne(ctx, append(t.valid(), bson.E{Key: "claims", Value: t.touches}), t.ended())
	if err != nil {
		return err
	}
	if t.over = result.MatchedCount > 0; !t.over {
		return errContended
	}
	return nil
}

// stands makes the transaction conflict with the claim that takes the turn next, and fails if one
// has taken it.
func (t *turn) stands(ctx context.Context) error {
	result, err := t.s.locks.UpdateOne(ctx, t.valid(),
		bson.D{{Key: "$inc", Value: bson.D{{Key: "admissions", Value: int64(1)}}}})
	if err == nil && result.MatchedCount == 0 {
		err = errContended
	}
	return err
}

// valid matches the line while the turn that was taken has not ended.
func (t *turn) valid() bson.D {
	return append(where("_id", t.line), bson.E{Key: "token", Value: t.token}, bson.E{Key: "until", Value: t.until},
		expr(bson.D{{Key: "$gt", Value: bson.A{"$until", "$$NOW"}}}))
}

// giveBack ends the turn if the line has its token. If the server does not confirm that soon, it
// tries again in the background.
func (t *turn) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(alone(context.WithoutCancel(ctx)), abortWithin)
	defer cancel()
	if t.end(ctx) == nil {
		return
	}
	t.s.undoing.start(t.end, func(err error) {
		t.s.logger.Error("A claim could not give back its turn; other claims may get nothing from the topic until the turn ends", err,
			watermill.LogFields{"group": string(t.line.Group), "topic": t.line.Topic})
	})
}

// end ends the turn if the line has its token. Afterwards none of the turn's takes has an effect,
// even if the server gets it later.
func (t *turn) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, firstTurn)
	defer cancel()
	if !t.doubtful {
		_, err := t.s.locks.UpdateOne(ctx, append(where("_id", t.line), bson.E{Key: "token", Value: t.token}), t.ended())
		return err
	}
	own := bson.D{{Key: "$eq", Value: bson.A{"$token", t.token}}}
	_, err := t.s.locks.UpdateOne(ctx, where("_id", t.line), pipeline(bson.D{
		{Key: "token", Value: given(own, "$$REMOVE", "$token")}, {Key: "until", Value: given(own, "$$REMOVE", "$until")},
		{Key: "doubts", Value: bson.D{{Key: "$max", Value: bson.A{"$doubts", t.doubts + 1}}}},
	}), options.UpdateOne().SetUpsert(true))
	return err
}

// ended is the update that ends the turn of a line that has its token.
func (t *turn) ended() bson.D {
	change := bson.D{{Key: "$unset", Value: bson.D{{Key: "token", Value: ""}, {Key: "until", Value: ""}}}}
	if t.doubtful {
		change = append(change, bson.E{Key: "$max", Value: bson.D{{Key: "doubts", Value: t.doubts + 1}}})
	}
	return change
}
