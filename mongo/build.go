package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outmill/outmill/storekit"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
)

// An index is built while others read and write, but at its begin and at its end it
// takes the whole collection for a moment. It waits for open transactions that have
// written there, and everybody else waits behind it. So each try is bounded, and the
// pauses between are longer than the tries.
const (
	firstBuild = time.Second
	buildTries = 5
	pauseTimes = 5
	// buildsPerSecond is how many documents a slow server indexes in a second.
	buildsPerSecond = 10_000
)

// errHeldUp says that indexes could not be built because others were at work.
var errHeldUp = errors.New("the indexes were not built in the time that others can be kept waiting")

// spec is the index as commands have it.
func (i index) spec() bson.D {
	spec := bson.D{{Key: "name", Value: i.name}, {Key: "key", Value: i.keys}}
	if i.partial != nil {
		spec = append(spec, bson.E{Key: "partialFilterExpression", Value: i.partial})
	}
	if i.unique {
		spec = append(spec, bson.E{Key: "unique", Value: true})
	}
	if after, ttl := i.seconds(); ttl {
		spec = append(spec, bson.E{Key: "expireAfterSeconds", Value: after})
	}
	return spec
}

// build builds the indexes. Nobody uses the collections of a schema that is not
// complete.
func (s *Store) build(ctx context.Context, in *driver.Collection, missing bson.A, inUse bool) error {
	command := bson.D{{Key: "createIndexes", Value: in.Name()}, {Key: "indexes", Value: missing}}
	if !s.config.WithoutTransactions {
		// By default all members must be there and have built it. A standalone server
		// refuses the field.
		command = append(command, bson.E{Key: "commitQuorum", Value: "majority"},
			bson.E{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}})
	}
	if !inUse {
		return s.db.RunCommand(ctx, command).Err()
	}
	count, err := in.EstimatedDocumentCount(ctx)
	if err != nil {
		return err
	}
	// The driver would add a maxTimeMS of its own for a deadline.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	bound := firstBuild + time.Duration(count/buildsPerSecond)*time.Second
	for try := 1; ; try++ {
		bounded := slices.Concat(command, bson.D{{Key: "maxTimeMS", Value: bound.Milliseconds()}})
		err := s.db.RunCommand(running, bounded).Err()
		if !hasCode(err, codeMaxTimeExpired) {
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
