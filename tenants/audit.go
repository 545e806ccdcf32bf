package tenants

import (
	"context"
	"encoding/json"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// Audited returns a page of the entries of all members, or of the one that [WithTenant] names;
// AuditEntry.Store names the member. Those of one member are in the order of their numbers, and
// those of several in the order of their times. Members without the role have no entries. See
// roles.Repairs.
//
// Where members fail, the error is a *storekit.PartialError with a *[MemberError] for each. The
// page is then that of the other members, and a call that goes on from AuditPage.Next asks the
// failed ones again from where they were.
func (s *Set) Audited(ctx context.Context, query roles.AuditQuery) (roles.AuditPage, error) {
	const call = "read the audit"
	places, limit, err := placesOf(query)
	if err != nil {
		return roles.AuditPage{}, failed(call, err)
	}
	members, err := s.operated(ctx, call)
	if err != nil {
		return roles.AuditPage{Next: query.After}, err
	}
	pages := map[string]roles.AuditPage{}
	ask := func(ctx context.Context, m *member, repairs roles.Repairs) (roles.AuditPage, error) {
		return repairs.Audited(ctx, roles.AuditQuery{After: places[m.name()], Limit: limit})
	}
	errs := gather(ctx, s, call, having(members, repairsOf), repairsOf, ask, func(m *member, page roles.AuditPage, err error) {
		for i := range page.Entries {
			page.Entries[i].Store = m.name()
		}
		if err == nil {
			pages[m.name()] = page
		}
	})
	page := mergeAudit(places, pages, limit)
	page.Done = page.Done && len(errs) == 0
	return page, partly(ctx, call, len(members), errs)
}

// placesOf returns the places in the members that AuditQuery.After has, and the limit.
func placesOf(query roles.AuditQuery) (places map[string]string, limit int, err error) {
	_, limit, err = storekit.CheckAudited(roles.AuditQuery{Limit: query.Limit})
	if err != nil {
		return nil, 0, err
	}
	places = map[string]string{}
	if query.After == "" {
		return places, limit, nil
	}
	if json.Unmarshal([]byte(query.After), &places) != nil {
		return nil, 0, storekit.InvalidConfig("AuditQuery.After is not the AuditPage.Next of a page of this set")
	}
	return places, limit, nil
}

// mergeAudit takes the newest of the members' next entries, up to the limit, and moves the places
// behind them.
func mergeAudit(places map[string]string, pages map[string]roles.AuditPage, limit int) roles.AuditPage {
	result := roles.AuditPage{Done: true}
	for len(result.Entries) < limit {
		newest := ""
		for name, page := range pages {
			if len(page.Entries) == 0 {
				continue
			}
			if newest == "" || newer(page.Entries[0], pages[newest].Entries[0]) {
				newest = name
			}
		}
		if newest == "" {
			break
		}
		page := pages[newest]
		result.Entries = append(result.Entries, page.Entries[0])
		places[newest] = storekit.AuditPlace(page.Entries[0])
		page.Entries = page.Entries[1:]
		pages[newest] = page
	}
	for _, page := range pages {
		result.Done = result.Done && page.Done && len(page.Entries) == 0
	}
	// A map of texts can always be encoded.
	next, _ := json.Marshal(places)
	result.Next = string(next)
	return result
}

// newer reports whether a comes before b.
func newer(a, b roles.AuditEntry) bool {
	if a.At.Equal(b.At) {
		return a.Store < b.Store
	}
	return a.At.After(b.At)
}

// DeleteOldAudit deletes entries of all members that have an audit. See roles.Repairs.
func (s *Set) DeleteOldAudit(ctx context.Context, limit int) (int, error) {
	return tidy(ctx, s, "delete old audit entries", limit, repairsOf, roles.Repairs.DeleteOldAudit)
}
