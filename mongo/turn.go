package mongo

import (
	"context"
	"time"

	"github.com/outmill/outmill/storekit"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
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
	token uuid
	// touches is how often the line had been touched when the turn began.
	touches int64
	over    bool
	// doubtful means that the server did not answer a request that takes the turn. It may have
	// taken it, or may still take it.
	doubtful bool
}

// turnDocument is the line's document in the collection locks.
type turnDocument struct {
	Token   uuid      `bson:"token"`
	Until   time.Time `bson:"until"`
	Touches int64     `bson:"claims"`
}

// awaitTurn takes the turn. It waits for a moment if another process has it, and returns nil if
// that process still has it then.
func (s *Store) awaitTurn(ctx context.Context, of line, token uuid, lasts time.Duration) (*turn, error) {
	t := &turn{s: s, line: of, token: token}
	waits := storekit.NewWaits(turnPause, turnPause<<turnTries)
	for try := 1; ; try++ {
		taken, err := t.take(ctx, lasts)
		if taken {
			return t, nil
		}
		if err == nil && try < turnTries {
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

// take changes nothing if another process has the turn. take does not wait for an open
// transaction that has touched the line. If the process of that transaction has stopped, the line
// stays blocked until the server aborts the transaction.
func (t *turn) take(ctx context.Context, lasts time.Duration) (taken bool, err error) {
	own, cancel := context.WithTimeout(ctx, firstTurn)
	defer cancel()
	asked := time.Now()
	free := bson.D{{Key: "$not", Value: bson.A{bson.D{{Key: "$gt", Value: bson.A{"$until", "$$NOW"}}}}}}
	var found turnDocument
	err = t.s.locks.FindOneAndUpdate(own, where("_id", t.line), pipeline(bson.D{
		{Key: "token", Value: given(free, t.token, "$token")}, {Key: "until", Value: given(free, inTime(lasts), "$until")},
		{Key: "claims", Value: bson.D{{Key: "$ifNull", Value: bson.A{"$claims", int64(0)}}}},
	}), options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&found)
	t.doubtful = t.doubtful || err != nil && unanswered(own, err)
	switch {
	case driver.IsDuplicateKeyError(err), err != nil && ctx.Err() == nil && driver.IsTimeout(err):
		// A busy server may write the turn after our time ran out. The next attempt, which has
		// the same token, then finds the turn taken by that write.
		return false, nil
	case err != nil || found.Token != t.token:
		return false, err
	}
	t.s.clock.set(found.Until.Add(-lasts), asked)
	t.touches = found.Touches
	return true, nil
}

// confirm ends the turn if it is still valid: the line has its token, its end has not passed, and
// nobody has touched the line. Otherwise it returns errContended.
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

// stands makes the transaction conflict with the claim that takes the turn next, and fails if one
// has taken it.
func (t *turn) stands(ctx context.Context) error {
	result, err := t.s.locks.UpdateOne(ctx,
		append(where("_id", t.line), bson.E{Key: "token", Value: t.token}, expr(bson.D{{Key: "$gt", Value: bson.A{"$until", "$$NOW"}}})),
		bson.D{{Key: "$inc", Value: bson.D{{Key: "admissions", Value: int64(1)}}}})
	if err == nil && result.MatchedCount == 0 {
		err = errContended
	}
	return err
}

// giveBack ends the turn if the line has its token. It tries again in the background if the server
// does not answer. It does the same if no turn was found and a request that takes it may still be on
// its way.
func (t *turn) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(alone(context.WithoutCancel(ctx)), abortWithin)
	defer cancel()
	found, err := t.end(ctx)
	if found || err == nil && !t.doubtful {
		return
	}
	t.s.undoing.start(func(ctx context.Context) {
		if storekit.Pause(ctx, firstTurn) == nil {
			_ = untilDone(ctx, func(ctx context.Context) error { _, err := t.end(ctx); return err })
		}
	})
}

// end reports whether the line had the turn's token.
func (t *turn) end(ctx context.Context) (found bool, err error) {
	result, err := t.s.locks.UpdateOne(ctx, append(where("_id", t.line), bson.E{Key: "token", Value: t.token}), turnEnded())
	return err == nil && result.MatchedCount > 0, err
}

func turnEnded() bson.D {
	return bson.D{{Key: "$unset", Value: bson.D{{Key: "token", Value: ""}, {Key: "until", Value: ""}}}}
}
