package tenants

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

type tenantKey struct{}

// WithTenant returns a context whose calls are for the tenant of that key. A call for one tenant
// takes it, in this order,
//
//  1. from the tenant ids of the messages, for an append, by Config.KeyOf;
//  2. from WithTenant;
//  3. from the delivery, in the context of a message that the set has delivered;
//  4. from the transaction that the context carries;
//  5. from Config.DefaultTenant.
//
// A message whose tenant id names another tenant than WithTenant is refused with ErrMixedTenants.
func WithTenant(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, tenantKey{}, key)
}

// InMember is [WithTenant] for tools that do not know this package. See roles.Members.
func (s *Set) InMember(ctx context.Context, name string) context.Context {
	return WithTenant(ctx, name)
}

// TenantOf returns the key of WithTenant, and whether ctx has one.
func TenantOf(ctx context.Context) (key string, ok bool) {
	key, ok = ctx.Value(tenantKey{}).(string)
	return key, ok
}

// Outbox returns the open store of the tenant, for what only that store has, such as WithTx:
//
//	store, err := set.Outbox("acme")
//	db, ok := outmill.As[*sqlite.Store](store)
//
// It costs no round trip, and returns the same store until the tenant's URL changes, so ask for
// it when it is needed and do not keep it: once replaced, it stays usable for Config.Linger.
// Errors: UnknownTenantError, ErrNotReady.
func (s *Set) Outbox(key string) (outmill.Store, error) {
	if s.life.Closed() {
		return nil, failed("outbox", outmill.ErrClosed)
	}
	m, done, err := s.use(key)
	if err != nil {
		return nil, err
	}
	defer done()
	if m.owes.Load() {
		return nil, m.failed("outbox", ErrNotReady)
	}
	return m.store, nil
}

// TxOf returns the transaction of a member that ctx carries, also of one that drains. It returns
// outmill.ErrForeignTx if ctx carries only transactions of other stores, also while the set has no
// member. See outmill.Writer.
func (s *Set) TxOf(ctx context.Context) (any, error) {
	if m := s.named(ctx); m != nil {
		tx, err := m.store.TxOf(ctx)
		if !errors.Is(err, outmill.ErrForeignTx) {
			return tx, err
		}
	}
	_, tx, err := s.ofTx(ctx, "")
	return tx, err
}

// named returns the member that WithTenant or the delivery names; nil where none does.
func (s *Set) named(ctx context.Context) *member {
	key, ok := TenantOf(ctx)
	if !ok {
		delivery, _ := outmill.Delivery(ctx)
		key = delivery.Store
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.members[key]
}

// ofTx returns the member whose transaction ctx carries, also one that drains. It asks the one of
// that name first. If it is of no member, the error is errForeignTx, whichever members there are.
func (s *Set) ofTx(ctx context.Context, first string) (*member, any, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	asked := false
	ask := func(m *member) (tx any, done bool, err error) {
		asked = true
		tx, err = m.store.TxOf(ctx)
		if errors.Is(err, outmill.ErrForeignTx) {
			return nil, false, nil
		}
		// A context without any transaction has none of the others either.
		return tx, true, err
	}
	if m := s.members[first]; m != nil {
		if tx, done, err := ask(m); done {
			return only(m, tx), tx, err
		}
	}
	for _, m := range s.members {
		if tx, done, err := ask(m); done {
			return only(m, tx), tx, err
		}
	}
	for _, list := range s.draining {
		for _, m := range list {
			if tx, done, err := ask(m); done {
				return only(m, tx), tx, err
			}
		}
	}
	if asked || s.carriesTx(ctx) {
		return nil, nil, errForeignTx
	}
	return nil, nil, nil
}

// carriesTx tells, for a set without members, whether ctx carries the transaction of any store. One that
// is closed does not tell, because its calls fail as those of any closed store.
func (s *Set) carriesTx(ctx context.Context) bool {
	_, err := storekit.TxFromContext(ctx, s)
	return err != nil && !s.life.Closed()
}

func only(m *member, tx any) *member {
	if tx == nil {
		return nil
	}
	return m
}

// one returns the member that a call for one tenant is for, and what ends its use. inTx tells
// whether ctx carries a transaction of it. keys are those of the messages.
func (s *Set) one(ctx context.Context, call string, keys ...string) (m *member, inTx bool, done func(), err error) {
	if err := s.life.Usable(ctx); err != nil {
		return nil, false, nil, failed(call, err)
	}
	key, err := s.keyFor(ctx, keys)
	if err != nil {
		return nil, false, nil, failed(call, err)
	}
	carried, _, err := s.ofTx(ctx, key)
	switch {
	case err != nil && !errors.Is(err, outmill.ErrForeignTx):
		return nil, false, nil, failed(call, err)
	case carried != nil && key != "" && carried.name() != key:
		return nil, false, nil, &MemberError{Member: key, Call: call, Err: outmill.ErrForeignTx}
	case carried != nil && s.reuse(carried):
		// Also where it drains: its transactions go on.
		return carried, true, carried.done, nil
	case carried != nil:
		// It has gone since it was asked.
		err = errForeignTx
	}
	foreign := err
	key = cmp.Or(key, s.cfg.DefaultTenant)
	if old := s.deliverer(ctx, key); old != nil && s.reuse(old) {
		return old, false, old.done, nil
	}
	if key == "" {
		return nil, false, nil, failed(call, alsoForeign(ErrNoTenant, foreign))
	}
	// The transaction of another store is not the member's either: its store refuses it where it matters.
	m, done, err = s.use(key)
	return m, false, done, alsoForeign(err, foreign)
}

// alsoForeign adds to the error of a call that finds no member that ctx carries the transaction of
// another store, if it does: the member that the caller means may have gone.
func alsoForeign(err, foreign error) error {
	if err == nil || foreign == nil {
		return err
	}
	return fmt.Errorf("%w; %w", err, foreign)
}

// keyFor returns the key that the messages or the context name; "" where none does.
func (s *Set) keyFor(ctx context.Context, keys []string) (string, error) {
	named, explicit := TenantOf(ctx)
	if !explicit {
		named = s.deliveredBy(ctx)
	}
	chosen := named
	for i, k := range keys {
		k = cmp.Or(k, named)
		switch {
		case i == 0 && !explicit:
			chosen = k
		case k == chosen:
		case cmp.Or(k, s.cfg.DefaultTenant) == cmp.Or(chosen, s.cfg.DefaultTenant):
			// One of them names the default tenant, and the other one nobody.
			chosen = s.cfg.DefaultTenant
		case k == "" || chosen == "":
			return "", ErrNoTenant
		default:
			return "", ErrMixedTenants
		}
	}
	return chosen, nil
}

// deliveredBy is the name of the member that has delivered the message of ctx; "" where it is
// none of this set.
func (s *Set) deliveredBy(ctx context.Context) string {
	delivery, ok := outmill.Delivery(ctx)
	if !ok {
		return ""
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if _, member := s.members[delivery.Store]; member || len(s.draining[delivery.Store]) > 0 {
		return delivery.Store
	}
	return ""
}

// deliverer is the draining member of that name that has delivered the message of ctx: its handler
// goes on there. It is nil where none has.
func (s *Set) deliverer(ctx context.Context, key string) *member {
	s.mu.RLock()
	defer s.mu.RUnlock()
	draining := s.draining[key]
	if len(draining) == 0 {
		return nil
	}
	delivery, ok := outmill.Delivery(ctx)
	if !ok || delivery.Store != key {
		return nil
	}
	for _, m := range draining {
		if m.holdsRecord(delivery.ID, delivery.Claims) {
			return m
		}
	}
	return nil
}

// Append writes the records to the outbox of their tenant: see [WithTenant]. All records of a call
// are of one tenant. See outmill.Writer. Errors: ErrNoTenant, ErrMixedTenants, UnknownTenantError,
// outmill.ErrForeignTx, ErrNotReady, those of the store. A call for a tenant that is not there, in a
// transaction of a store that is not, gets both.
func (s *Set) Append(ctx context.Context, records ...*outmill.Record) error {
	const call = "append"
	if len(records) == 0 {
		return s.life.Usable(ctx)
	}
	keys := make([]string, 0, len(records))
	for _, r := range records {
		if r != nil && r.TenantID != "" {
			keys = append(keys, s.cfg.KeyOf(r.TenantID))
		} else {
			keys = append(keys, "")
		}
	}
	m, inTx, done, err := s.one(ctx, call, slices.Compact(keys)...)
	if err != nil {
		// What is wrong with the records comes first: it may be the tenant id.
		if invalid := storekit.CheckRecords(records, 0); invalid != nil {
			return failed(call, invalid)
		}
		return err
	}
	defer done()
	if inTx && m.owes.Load() {
		// To register now would need a second connection.
		return m.failed(call, ErrNotReady)
	}
	if err := s.call(ctx, m, call, boundOf(inTx), func(ctx context.Context) error {
		if err := s.settleDebts(ctx, m); err != nil {
			return fmt.Errorf("%w: %w", ErrNotReady, err)
		}
		return m.store.Append(ctx, records...)
	}); err != nil {
		return err
	}
	if !inTx {
		s.appended(m, records)
	}
	return nil
}
