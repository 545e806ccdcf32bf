package indexes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/storekit"
)

// Other clients can read and write while an index is built, but the build locks the whole
// collection for a moment at its start and at its end. For these locks it waits for open
// transactions that have written to the collection, and all other operations wait behind the
// build. So each attempt is bounded, and the pauses between attempts are longer than the
// attempts.
const (
	firstBuild = time.Second
	buildTries = 5
	pauseTimes = 5
	// buildsPerSecond is the number of documents that a slow server indexes in a second.
	buildsPerSecond = 10_000
)

// errHeldUp says that open transactions held the builds of indexes up.
var errHeldUp = errors.New("the index builds were stopped, because other operations waited for them")

// Spec returns the index in the form of MongoDB's commands.
func (i Index) Spec() bson.D {
	spec := bson.D{{Key: "name", Value: i.Name}, {Key: "key", Value: i.Keys}}
	if i.Partial != nil {
		spec = append(spec, bson.E{Key: "partialFilterExpression", Value: i.Partial})
	}
	if i.Unique {
		spec = append(spec, bson.E{Key: "unique", Value: true})
	}
	if after, ttl := i.seconds(); ttl {
		spec = append(spec, bson.E{Key: "expireAfterSeconds", Value: after})
	}
	return spec
}

// build builds the indexes. If the collection is not in use, the schema is not complete, so nobody uses it yet.
func build(ctx context.Context, in *mongo.Collection, missing bson.A, inUse bool) error {
	// By default the server waits until all members have built the index.
	command := bson.D{{Key: "createIndexes", Value: in.Name()}, {Key: "indexes", Value: missing},
		{Key: "commitQuorum", Value: "majority"}, {Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}}}
	if !inUse {
		return in.Database().RunCommand(ctx, command).Err()
	}
	count, err := in.EstimatedDocumentCount(ctx)
	if err != nil {
		return err
	}
	// For a context with a deadline, the driver would add its own maxTimeMS.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	bound := firstBuild + time.Duration(count/buildsPerSecond)*time.Second
	for try := 1; ; try++ {
		bounded := slices.Concat(command, bson.D{{Key: "maxTimeMS", Value: bound.Milliseconds()}})
		err := in.Database().RunCommand(running, bounded).Err()
		if !mongoerr.HasCode(err, mongoerr.CodeMaxTimeExpired) {
			return err
		}
		err = fmt.Errorf("%w: collection %s, after %d tries of up to %s each: end the transactions that stay open for long and call Ensure "+
			"again, or run the commands of Statements at a quiet time: %w",
			errHeldUp, in.Name(), try, bound, err)
		if try == buildTries {
			return err
		}
		if stop := storekit.Pause(ctx, pauseTimes*bound); stop != nil {
			return fmt.Errorf("%w (%w)", stop, err)
		}
		bound *= 2
	}
}
