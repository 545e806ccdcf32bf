package postgres

import (
	"context"

	"github.com/outmill/outmill/storekit"
)

const (
	// restFunction is the name of a function of a schema, for sqlResting.
	restFunction = `{p:resting}`

	// sqlResting needs no safePath, because it names all schemas.
	sqlResting = `SELECT {p:resting_of}($1::pg_catalog.text[], $2::pg_catalog.int8[], $3::pg_catalog.int8[])`
)

// IdleWith returns the pool and the store: the schemas of one database whose stores share a pool
// are asked together, with one statement. See roles.Idle.
func (s *Store) IdleWith() (with, self any) { return s.conns.Pool(), s }

// AreIdle reports which of the stores are at rest. It is one statement for all of them, which
// takes about a millisecond of processor time for each, and ten times as much for the first time on
// a connection. A store whose schema is missing, or locked for more than 100 ms, is not at rest. See
// roles.Idle.
func (s *Store) AreIdle(ctx context.Context, stores []any) ([]bool, error) {
	const operation = "look for rest"
	if err := s.usable(ctx); err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	var open []*Store
	var places []int
	if _, err := storekit.RestOf(ctx, stores, 1, func(ctx context.Context, other *Store) (bool, error) {
		places = append(places, -1)
		if other.usable(ctx) == nil {
			places[len(places)-1] = len(open)
			open = append(open, other)
		}
		return false, nil
	}); err != nil {
		return nil, err
	}
	answers, err := askTogether(ctx, open)
	if err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	resting := make([]bool, len(stores))
	for i, place := range places {
		resting[i] = place >= 0 && answers[place] != nil && *answers[place]
	}
	return resting, nil
}

// askTogether calls resting_of in the schema of the first store that has it.
func askTogether(ctx context.Context, stores []*Store) (answers []*bool, err error) {
	names := make([]string, len(stores))
	retain, retainJoins := make([]int64, len(stores)), make([]int64, len(stores))
	for i, s := range stores {
		names[i] = s.sql.text(restFunction)
		retain[i], retainJoins[i] = s.config.Retain.Microseconds(), s.config.RetainJoins.Microseconds()
	}
	answers = make([]*bool, len(stores))
	for _, s := range stores {
		err = s.conns.ScanRow(ctx, s.sql.text(sqlResting), []any{names, retain, retainJoins}, &answers)
		if code(err) != codeNoFunction && code(err) != codeNoSchema {
			return answers, err
		}
		answers = make([]*bool, len(stores))
	}
	return answers, nil
}
