package sagas

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// ListSagas lists sagas of one type. See roles.Sagas.
func (s *Sagas) ListSagas(ctx context.Context, query roles.SagaQuery, opts roles.SagaOptions) (roles.SagaPage, error) {
	const operation = "list sagas"
	page := roles.SagaPage{Next: query.After}
	err := storekit.CheckListSagas(query)
	if err == nil && query.Type == "" {
		err = storekit.InvalidConfig("SagaQuery.Type is empty: want a type, because in MongoDB each type has a collection of its own")
	}
	if err != nil {
		return page, s.config.Explain(ctx, operation, err)
	}
	err = s.sagaWork(ctx, operation, &roles.Saga{Type: query.Type, Correlation: query.Type}, opts, false,
		func(ctx context.Context, w sagaWork) (err error) {
			page, err = storekit.PageOfSagas(query, func(id outmill.WorkItemID, limit int) ([]*roles.Saga, error) {
				return w.before(ctx, id, limit)
			})
			return err
		})
	return page, err
}

// before returns sagas with smaller ids, the largest id first.
func (w sagaWork) before(ctx context.Context, id outmill.WorkItemID, limit int) ([]*roles.Saga, error) {
	after, err := w.place(ctx, id)
	if err != nil {
		return nil, err
	}
	found, err := findAll[bson.Raw](ctx, w.in, where(fieldID, bson.D{{Key: "$lt", Value: after}}),
		first(limit, bson.D{{Key: fieldID, Value: -1}}, w.version, fieldCorrelation, fieldFinished, fieldCreated, fieldUpdated))
	if err != nil {
		return nil, err
	}
	sagas := make([]*roles.Saga, len(found))
	for i, raw := range found {
		var head sagaHead
		if err := bson.Unmarshal(raw, &head); err != nil {
			return nil, err
		}
		correlation, _ := raw.Lookup(fieldCorrelation).StringValueOK()
		version, _ := raw.Lookup(w.version).AsInt64OK()
		sagas[i] = &roles.Saga{
			ID: outmill.WorkItemID(head.ID), Type: w.saga.Type, Correlation: correlation, Version: version, Finished: head.Finished,
			CreatedAt: utc(head.CreatedAt), UpdatedAt: utc(head.UpdatedAt),
		}
	}
	return sagas, nil
}

// place returns the value of _id behind which a list continues. In the server's order, ids of
// subtype 3 come before those of subtype 4. So if there are any, the document with the id says
// where the list is. If that is gone, the list may repeat some.
func (w sagaWork) place(ctx context.Context, id outmill.WorkItemID) (any, error) {
	var last struct {
		ID any `bson:"_id"`
	}
	err := w.in.FindOne(ctx, in(fieldID, sagaID(id).stored()), options.FindOne().SetProjection(ascending(fieldID))).Decode(&last)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return uuid(id), nil
	}
	return last.ID, err
}
