package tenants

import (
	"errors"
	"fmt"

	"github.com/outmill/outmill"
)

var (
	// ErrNoTenant says that a call is for one tenant and names none.
	ErrNoTenant = errors.New("outmill/tenants: the call names no tenant: set the message's tenant id (outmill.SetTenantID), " +
		"or pass a context of tenants.WithTenant")
	// ErrMixedTenants says that a call is for one tenant and names several.
	ErrMixedTenants = errors.New("outmill/tenants: the call names several tenants: make one call for each, because no transaction " +
		"spans their databases")
	// ErrNotReady says that the member has not got the registrations of all groups yet, so a
	// message could miss one of them. The set makes them as soon as the member lets it: try again.
	ErrNotReady = errors.New("outmill/tenants: not all groups are registered in this member yet: try again")
)

// errForeignTx is the outmill.ErrForeignTx of a transaction that is of no member.
var errForeignTx = fmt.Errorf("%w (no store of the set has begun it, or its tenant was removed or changed more than tenants.Config.Linger "+
	"ago: begin it in the store that Set.Outbox returns now, and set Linger to more than the longest transaction)", outmill.ErrForeignTx)

// UnknownTenantError says that the set has no tenant of this key, or that its store has not been
// opened yet.
type UnknownTenantError struct {
	Key string
	// Err is why the store could not be opened; nil where no discovery has named the tenant.
	Err error
}

func (e *UnknownTenantError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("outmill/tenants: the store of tenant %q is not open: %v", e.Key, e.Err)
	}
	return fmt.Sprintf("outmill/tenants: no tenant has the key %q", e.Key)
}

func (e *UnknownTenantError) Unwrap() error { return e.Err }

// MemberError is the error of a call in one member.
type MemberError struct {
	// Member is the name of the member, which is its tenant's key.
	Member string
	// Call is what the member was to do, such as "claim".
	Call string
	Err  error
}

func (e *MemberError) Error() string {
	return fmt.Sprintf("outmill/tenants: %s in member %q: %v", e.Call, e.Member, e.Err)
}

func (e *MemberError) Unwrap() error { return e.Err }

// RoleError says that the store of a member lacks the role that a call needs.
type RoleError struct {
	Member string
	// Role is the name of the interface, such as "roles.Joins".
	Role string
}

func (e *RoleError) Error() string {
	return fmt.Sprintf("outmill/tenants: the store of member %q has no %s", e.Member, e.Role)
}

// failed names the call in an error that is not one member's.
func failed(call string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("outmill/tenants: %s: %w", call, err)
}
