package storekit

import "github.com/outmill/outmill"

// Tenant is one tenant of package tenants, as a discovery names it: tenants.Tenant is this type.
// It is here because stores, too, have discoveries, such as postgres.Schemas.
type Tenant struct {
	// Key is what calls name the tenant by: 1 to 255 bytes, compared case-sensitively.
	Key string
	// URL is what opens the tenant's store: tenants.Config.Open, or the discovery that made it.
	// Errors and logs show it without its password.
	URL string
	// Store is an open store to use instead of a URL. Its owner closes it, after the set.
	Store outmill.Store
}
