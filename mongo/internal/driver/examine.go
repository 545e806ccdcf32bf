package driver

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/mongo/internal/doctor"
	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/roles"
)

var _ roles.Examiner = (*Driver)(nil)

// Examine looks for a server that is no replica set, or that is locked, for missing indexes and rights, and for transactions and lock waits
// that last too long. See roles.Examiner.
func (d *Driver) Examine(ctx context.Context, request roles.ExamineRequest) (e roles.Examination, err error) {
	ctx = alone(ctx)
	collections := make([]*mongo.Collection, len(Collections()))
	for i, name := range Collections() {
		collections[i] = d.collection(name)
	}
	hears := d.records
	if d.config.WithoutChangeStream {
		hears = nil
	}
	for _, step := range []func() error{
		func() error { return doctor.Server(ctx, d.db, &e) },
		func() error { return doctor.Locked(ctx, d.client, &e) },
		func() error {
			_, err := d.version(ctx)
			if mongoerr.HasCode(err, mongoerr.CodeUnauthorized) {
				// The report names the right.
				return nil
			}
			return err
		},
		func() error { return doctor.Indexes(ctx, d.collection, allIndexes(), &e) },
		func() error { return doctor.Rights(ctx, collections, hears, &e) },
		func() error { return doctor.Operations(ctx, d.db, request, &e) },
	} {
		if err := step(); err != nil {
			return e, err
		}
	}
	return e, nil
}
