package tenants

import (
	"context"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// repeatedCalls are the calls of members that programs repeat by themselves, with their kinds. Those of
// other names are not noted.
var repeatedCalls = map[string]string{
	"claim": storekit.CallClaim, "extend": storekit.CallExtend, registerCall: storekit.CallRegister,

	"ack": storekit.CallSettle, "abandon": storekit.CallSettle, "fail": storekit.CallSettle, "snooze": storekit.CallSettle,
	releaseCall: storekit.CallSettle,

	"maintain": storekit.CallMaintain,

	"reap": storekit.CallUpkeep, "expire records": storekit.CallUpkeep, "expire registrations": storekit.CallUpkeep,
	"delete processed records": storekit.CallUpkeep, "delete dedup keys": storekit.CallUpkeep, "delete joins": storekit.CallUpkeep,
	"delete notes": storekit.CallUpkeep, "delete old sagas": storekit.CallUpkeep, "delete old audit entries": storekit.CallUpkeep,
}

// noteCall notes the result of a call that is repeated.
func (m *member) noteCall(ctx context.Context, call string, began time.Time, err *error) {
	kind, repeated := repeatedCalls[call]
	if !repeated {
		return
	}
	part := ""
	if kind == storekit.CallSettle || kind == storekit.CallUpkeep {
		part = call
	}
	m.repeated.Note(ctx, kind, part, began, *err)
}

// FailingCalls returns the calls that fail in each member, also those that the member's store repeats by
// itself, and the discovery if that fails. See storekit.FailingCaller.
func (s *Set) FailingCalls() []outmill.FailingCall {
	callers := []any{&s.repeated}
	for _, m := range s.snapshot() {
		callers = append(callers, m)
	}
	return storekit.FailingOf(callers...)
}

// FailingCalls returns the calls of one member that fail, with its name.
func (m *member) FailingCalls() []outmill.FailingCall {
	return storekit.InMember(storekit.FailingOf(&m.repeated, m.store), m.name())
}

var _ storekit.FailingCaller = (*Set)(nil)

// onlyOwn returns the registrations without the failing calls and the handlers of other members, about
// which the operator of this member's database can do nothing.
func (m *member) onlyOwn(regs []outmill.Registration) []outmill.Registration {
	isOthers := func(call outmill.FailingCall) bool { return call.Store != "" && call.Store != m.name() }
	handlesOthers := func(h outmill.Handling) bool { return h.Store != "" && h.Store != m.name() }
	own := slices.Clone(regs)
	for i := range own {
		own[i].Failing = slices.DeleteFunc(slices.Clone(own[i].Failing), isOthers)
		own[i].Handling = slices.DeleteFunc(slices.Clone(own[i].Handling), handlesOthers)
	}
	return own
}
