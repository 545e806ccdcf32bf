package mongo

import (
	"context"
	"time"

	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/mongo/internal/doctor"
	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/roles"
)

// Examine looks for a server that is no replica set, for missing indexes and rights, for
// transactions and lock waits that last too long, and for another time than this machine's.
// Transactions are too long after 30 seconds, or earlier if the request says so. To list the
// indexes it needs the action listIndexes, and to see transactions the action inprog. See
// roles.Examiner.
func (s *Store) Examine(ctx context.Context, request roles.ExamineRequest) (roles.Examination, error) {
	var e roles.Examination
	ctx = alone(ctx)
	err := s.usable(ctx)
	if err == nil {
		err = s.examine(ctx, request, &e)
	}
	return e, s.explain(ctx, "examine", err)
}

func (s *Store) examine(ctx context.Context, request roles.ExamineRequest, e *roles.Examination) error {
	asked := time.Now()
	now, err := doctor.Server(ctx, s.db, s.config.WithoutTransactions, e)
	if err != nil {
		return err
	}
	if !now.IsZero() {
		e.AddClock(request, asked, now, time.Now())
	}
	found, err := s.findState(ctx)
	switch {
	case err == nil:
		err = schemaError(found)
	case mongoerr.HasCode(err, mongoerr.CodeUnauthorized):
		// The report names the right.
		err = nil
	}
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return doctor.Indexes(ctx, s.collection, allIndexes(), e) },
		func() error { return s.examineRights(ctx, e) },
		func() error { return doctor.Operations(ctx, s.db, request, e) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) examineRights(ctx context.Context, e *roles.Examination) error {
	collections := make([]*driver.Collection, len(collectionNames))
	for i, name := range collectionNames {
		collections[i] = s.collection(name)
	}
	hears := s.records
	if s.config.WithoutChangeStream || s.config.WithoutTransactions {
		hears = nil
	}
	return doctor.Rights(ctx, collections, hears, e)
}
