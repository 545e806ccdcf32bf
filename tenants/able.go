package tenants

import (
	"context"
	"reflect"
	"sync"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// able is the store of a member with its roles, which are looked up once, when the member is made. A role
// that the store lacks is nil.
type able struct {
	store      outmill.Store
	transactor roles.Transactor
	inbox      roles.Inbox
	joins      roles.Joins
	sagas      roles.Sagas
	pauses     roles.Pauses
	repairs    roles.Repairs
	examiner   roles.Examiner
	waker      roles.Waker
	idler      roles.Idle
	judge      storekit.CommitJudge
	keys       storekit.DedupKeys
	waiting    storekit.WaitingReader
	turns      storekit.TenantTurns
	listener   storekit.BudgetedListener
}

func ableOf(store outmill.Store) able {
	a := able{store: store}
	a.transactor, _ = outmill.As[roles.Transactor](store)
	a.inbox, _ = outmill.As[roles.Inbox](store)
	a.joins, _ = outmill.As[roles.Joins](store)
	a.sagas, _ = outmill.As[roles.Sagas](store)
	a.pauses, _ = outmill.As[roles.Pauses](store)
	a.repairs, _ = outmill.As[roles.Repairs](store)
	a.examiner, _ = outmill.As[roles.Examiner](store)
	a.waker, _ = outmill.As[roles.Waker](store)
	a.idler, _ = outmill.As[roles.Idle](store)
	a.judge, _ = outmill.As[storekit.CommitJudge](store)
	a.keys, _ = outmill.As[storekit.DedupKeys](store)
	a.waiting, _ = outmill.As[storekit.WaitingReader](store)
	a.turns, _ = outmill.As[storekit.TenantTurns](store)
	a.listener, _ = outmill.As[storekit.BudgetedListener](store)
	return a
}

// roleOf is the role of a store that a call needs.
type roleOf[Role any] func(a *able) Role

func storeOf(a *able) outmill.Store            { return a.store }
func transactorOf(a *able) roles.Transactor    { return a.transactor }
func inboxOf(a *able) roles.Inbox              { return a.inbox }
func joinsOf(a *able) roles.Joins              { return a.joins }
func sagasOf(a *able) roles.Sagas              { return a.sagas }
func pausesOf(a *able) roles.Pauses            { return a.pauses }
func repairsOf(a *able) roles.Repairs          { return a.repairs }
func keysOf(a *able) storekit.DedupKeys        { return a.keys }
func waitingOf(a *able) storekit.WaitingReader { return a.waiting }

// in returns the role of the member's store, or a RoleError.
func (of roleOf[Role]) in(m *member) (Role, error) {
	role := of(&m.able)
	if any(role) == nil {
		return role, &RoleError{Member: m.name(), Role: reflect.TypeFor[Role]().String()}
	}
	return role, nil
}

// having returns the members whose stores have the role.
func having[Role any](members []*member, of roleOf[Role]) []*member {
	var list []*member
	for _, m := range members {
		if _, err := of.in(m); err == nil {
			list = append(list, m)
		}
	}
	return list
}

// inOne calls fn with the role of the member that ctx names.
func inOne[Role any](ctx context.Context, s *Set, call string, of roleOf[Role],
	fn func(ctx context.Context, m *member, role Role) error) error {
	m, inTx, done, err := s.one(ctx, call)
	if err != nil {
		return err
	}
	defer done()
	role, err := of.in(m)
	if err != nil {
		return err
	}
	return s.call(ctx, m, call, boundOf(inTx), func(ctx context.Context) error { return fn(ctx, m, role) })
}

// boundOf is the bound of a call for one member, in a transaction or not.
func boundOf(inTx bool) bound {
	if inTx {
		return waits
	}
	return long
}

// do calls fn with the role of the member that ctx names.
func do[Role any](ctx context.Context, s *Set, call string, of roleOf[Role], fn func(ctx context.Context, role Role) error) error {
	return inOne(ctx, s, call, of, func(ctx context.Context, _ *member, role Role) error { return fn(ctx, role) })
}

// get is do for a call with a result.
func get[Role, T any](ctx context.Context, s *Set, call string, of roleOf[Role],
	fn func(ctx context.Context, role Role) (T, error)) (result T, err error) {
	err = inOne(ctx, s, call, of, func(ctx context.Context, _ *member, role Role) (err error) {
		result, err = fn(ctx, role)
		return err
	})
	return result, err
}

// gather calls ask with the role of each member, and returns the errors, as each does. take gets what the
// members gave, one at a time, also with an error.
func gather[Role, T any](ctx context.Context, s *Set, call string, members []*member, of roleOf[Role],
	ask func(ctx context.Context, m *member, role Role) (T, error), take func(m *member, given T, err error)) map[string]error {
	var mu sync.Mutex
	return s.each(ctx, call, long, members, func(ctx context.Context, m *member) error {
		role, err := of.in(m)
		if err != nil {
			return err
		}
		given, err := ask(ctx, m, role)
		mu.Lock()
		defer mu.Unlock()
		take(m, given, err)
		return err
	})
}
