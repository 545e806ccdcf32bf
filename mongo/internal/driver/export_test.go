package driver

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill/engine/driver"
)

// Stand has the process stand in the queue of a line, as a transaction does that has lost.
func (d *Driver) Stand(ctx context.Context, line driver.Line) error { return d.stand(ctx, line) }

// ID is that of the process in queues.
func (d *Driver) ID() bson.ObjectID { return d.id }
