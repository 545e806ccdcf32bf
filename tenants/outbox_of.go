package tenants

import (
	"strings"

	"github.com/google/uuid"

	"github.com/outmill/outmill"
)

// OutboxOf is Outbox for a key that is a UUID. The tenant's key may have the canonical form, such
// as 495aad97-0f4e-4b0c-9d5a-3c3f7c1c0f5e, or one that .NET and SQL Server print: in upper case,
// in braces or parentheses, or without hyphens. If keys of several forms are the same UUID, the
// first of this order is meant. A tenant id of a message is compared as it is: set
// Config.KeyOf if messages and the discovery write their UUIDs in two ways.
func (s *Set) OutboxOf(key uuid.UUID) (outmill.Store, error) {
	forms := formsOf(key)
	return s.Outbox(s.knownOf(forms))
}

// knownOf returns the first of the names that is a tenant's, and else the first one.
func (s *Set) knownOf(names []string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, name := range names {
		if s.members[name] != nil || s.opening[name] != nil {
			return name
		}
	}
	return names[0]
}

func formsOf(key uuid.UUID) []string {
	canonical := key.String()
	plain := strings.ReplaceAll(canonical, "-", "")
	forms := []string{canonical}
	for _, form := range []string{canonical, "{" + canonical + "}", "(" + canonical + ")", plain} {
		forms = append(forms, form, strings.ToUpper(form))
	}
	return forms
}
