package tenants

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Tenant is one tenant, as a discovery names it. A change of any field but Key swaps the
// tenant's store for a new one.
type Tenant = storekit.Tenant

// Discovery says which tenants there are.
type Discovery interface {
	// Tenants returns all tenants, in any order. After an error the set keeps the last answer.
	// No two calls are under way at the same time.
	Tenants(ctx context.Context) ([]Tenant, error)
}

// Opener is a Discovery that opens the stores of its tenants itself, such as postgres.Schemas and
// mongo.Databases. The set calls Open where Config.Open is nil, for tenants without a store, and
// closes what it returns.
type Opener interface {
	Discovery
	// Open opens the store of a tenant that Tenants has returned. It may be called concurrently.
	Open(ctx context.Context, tenant Tenant) (outmill.Store, error)
}

// Static is a fixed list of tenants.
type Static []Tenant

// Tenants returns the list.
func (s Static) Tenants(context.Context) ([]Tenant, error) { return s, nil }

// Func is a discovery by a function.
type Func func(ctx context.Context) ([]Tenant, error)

// Tenants calls the function.
func (f Func) Tenants(ctx context.Context) ([]Tenant, error) { return f(ctx) }

// Query is a discovery that asks a database.
type Query struct {
	// DB is the user's, and is not closed.
	DB *sql.DB
	// SQL returns two columns of text, key and URL, and a row for each tenant.
	SQL string
	// Args are those of the statement.
	Args []any
}

// Tenants runs the statement.
func (q Query) Tenants(ctx context.Context) (tenants []Tenant, err error) {
	if q.DB == nil {
		return nil, storekit.InvalidConfig("tenants.Query.DB is nil")
	}
	rows, err := q.DB.QueryContext(ctx, q.SQL, q.Args...)
	if err != nil {
		return nil, fmt.Errorf("outmill/tenants: query of tenants: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var t Tenant
		if err := rows.Scan(&t.Key, &t.URL); err != nil {
			return nil, fmt.Errorf("outmill/tenants: query of tenants: want two columns of text, key and URL: %w", err)
		}
		tenants = append(tenants, t)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("outmill/tenants: query of tenants: %w", err)
	}
	return tenants, nil
}

// byKey checks an answer of a discovery.
func byKey(found []Tenant) (map[string]Tenant, error) {
	tenants := make(map[string]Tenant, len(found))
	urls := make(map[string]string, len(found))
	stores := make(map[outmill.Store]string, len(found))
	for _, t := range found {
		if t.Key == "" || len(t.Key) > outmill.MaxTextLength {
			return nil, storekit.InvalidConfig("the key of a tenant has %d bytes: want 1 to %d", len(t.Key), outmill.MaxTextLength)
		}
		if _, twice := tenants[t.Key]; twice {
			return nil, storekit.InvalidConfig("two tenants have the key %q", t.Key)
		}
		hasStore := !outmill.IsNil(t.Store)
		if hasStore == (t.URL != "") {
			return nil, storekit.InvalidConfig("tenant %q: want a URL or a store, and not both", t.Key)
		}
		if hasStore && !reflect.TypeOf(t.Store).Comparable() {
			return nil, storekit.InvalidConfig("tenant %q: the store, a %T, cannot be compared: pass a pointer", t.Key, t.Store)
		}
		// Two members with one outbox would hand out its records under two names.
		other, shared := urls[t.URL]
		if hasStore {
			other, shared = stores[t.Store]
			stores[t.Store] = t.Key
		} else {
			urls[t.URL] = t.Key
		}
		if shared {
			return nil, storekit.InvalidConfig("tenants %q and %q have the same store: give it one key, and set Config.KeyOf", other, t.Key)
		}
		tenants[t.Key] = t
	}
	return tenants, nil
}
