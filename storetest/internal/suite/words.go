package suite

import (
	"context"
	"errors"
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// ClaimAcked claims by key and acks.
func (e *Env) ClaimAcked(n int) []*outmill.Record {
	e.T.Helper()
	found := e.ClaimN(outmill.NewOwnerToken(), n, ByKey)
	e.Ack(found...)
	return found
}

// Did calls a method of a janitor and returns its number.
func (e *Env) Did(method func(context.Context, int) (int, error), limit int) int {
	e.T.Helper()
	n, err := method(e.Ctx, limit)
	require.NoError(e.T, err)
	return n
}

// Parked appends records of key k, fails the first with Park, and has a claim meet the others.
func (e *Env) Parked(list ...string) []*outmill.Record {
	e.T.Helper()
	records := Keyed("k", list...)
	e.Filled(records...)
	e.ParkAndMeet(e.ClaimOne(outmill.NewOwnerToken(), list[0], ParkOrder))
	return records
}

// ParkAndMeet fails the records with Park, and has claims meet the later records of their keys, because a store may leave these
// to the next claim with KeyPark. The claims return none of these keys, and give other records back.
func (e *Env) ParkAndMeet(records ...*outmill.Record) {
	e.T.Helper()
	e.Park(records...)
	for _, parked := range records {
		found := e.ClaimAll(ParkOrder, OfGroup(parked.Group), From(parked.Topic))
		for _, r := range found {
			require.NotEqual(e.T, parked.Key, r.Key, "%s is behind %s, whose key is parked", r.MessageID, parked.MessageID)
		}
		e.Release(found...)
	}
}

// RegisterAs makes a registration.
func (e *Env) RegisterAs(reg outmill.Registration) {
	e.T.Helper()
	require.NoError(e.T, e.Store.RegisterGroup(e.Ctx, reg), "RegisterGroup")
}

// Expire ends registrations, up to the limit.
func (e *Env) Expire(limit int) (registrations, records int) {
	e.T.Helper()
	registrations, records, err := e.Store.ExpireRegistrations(e.Ctx, limit)
	require.NoError(e.T, err, "ExpireRegistrations")
	return registrations, records
}

// RequireExpired ends registrations, and checks the numbers of registrations and records.
func (e *Env) RequireExpired(registrations, records int) {
	e.T.Helper()
	r, n := e.Expire(1000)
	require.Equal(e.T, []int{registrations, records}, []int{r, n}, "registrations and records that went")
}

// Drop drops a group.
func (e *Env) Drop(name string) {
	e.T.Helper()
	_, err := e.Store.DropGroup(e.Ctx, name)
	require.NoError(e.T, err, "DropGroup")
}

// RequireNames checks the names of the records, in this order.
func (e *Env) RequireNames(want []string, got []*outmill.Record) {
	e.T.Helper()
	require.Equal(e.T, want, Names(got))
}

// RequireRefusal checks that the error is ErrInvalidConfig or ErrInvalidRecord.
func (e *Env) RequireRefusal(err error, what ...any) {
	e.T.Helper()
	require.Error(e.T, err, what...)
	for _, typed := range []error{outmill.ErrInvalidConfig, outmill.ErrInvalidRecord} {
		if errors.Is(err, typed) {
			return
		}
	}
	require.Fail(e.T, fmt.Sprintf("%q is neither ErrInvalidConfig nor ErrInvalidRecord", err), what...)
}

// Unchanged runs f and checks that it does not change the record.
func (e *Env) Unchanged(r *outmill.Record, f func()) {
	e.T.Helper()
	before := e.Get(r)
	f()
	require.Equal(e.T, before, e.Get(r), "the record was changed")
}

// Foreign returns a context with a transaction of another store.
func Foreign(ctx context.Context) context.Context {
	return storekit.ContextWithTx(ctx, "another store", "its transaction")
}
