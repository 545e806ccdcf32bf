package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Schemas is a discovery for package tenants: each schema of one database whose name matches is a
// tenant. The stores share the pool, and one connection beside it that listens for all of them. A
// tenants.Set asks 64 of them with one statement whether they are at rest: see roles.Idle.
//
//	tenants.Config{Discovery: postgres.Schemas{Pool: pool, Pattern: "tenant_*"}, Ensure: true}
//
// A schema that is dropped and created again is a changed tenant, which gets a new store. To list
// schemas needs no rights; each store needs its own in its schema.
type Schemas struct {
	// Pool is the user's, and is not closed. Its size bounds the connections of all tenants
	// together, apart from the one that listens.
	Pool *pgxpool.Pool
	// Pattern is compared with the names of schemas: * stands for any characters, \* for *. All other
	// characters stand for themselves; upper and lower case differ. The schemas of PostgreSQL (pg_…
	// and information_schema) never match. Required.
	Pattern string
	// Key makes the key of the tenant from the name of its schema. Default nil: they are the same.
	Key func(schema string) string
	// Config has the settings of all stores. Its Schema must be empty. The name of a store is
	// Config.Name (default "postgres"), followed by "/" and the schema.
	Config Config
	// Logger is that of the stores. Nil logs nothing.
	Logger watermill.LoggerAdapter
}

const (
	sqlSchemas = `SELECT oid::bigint, nspname::text FROM pg_catalog.pg_namespace
WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' ORDER BY nspname`

	schemaScheme = "postgres-schema:"
)

// Tenants lists the schemas with one statement. Errors: outmill.ErrInvalidConfig, PostgreSQL's.
func (s Schemas) Tenants(ctx context.Context) ([]storekit.Tenant, error) {
	matches, err := s.check()
	if err != nil {
		return nil, err
	}
	rows, err := s.Pool.Query(ctx, sqlSchemas)
	if err != nil {
		return nil, fmt.Errorf("outmill/postgres: list schemas: %w", err)
	}
	var list []storekit.Tenant
	var oid int64
	var name string
	if _, err := pgx.ForEachRow(rows, []any{&oid, &name}, func() error {
		if matches(name) {
			list = append(list, storekit.Tenant{Key: s.keyOf(name), URL: schemaScheme + strconv.FormatInt(oid, 10) + "/" + name})
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("outmill/postgres: list schemas: %w", err)
	}
	return list, nil
}

func (s Schemas) check() (matches func(string) bool, err error) {
	matches, err = storekit.NamePattern("postgres.Schemas.Pattern", s.Pattern)
	if s.Pool == nil {
		err = errors.Join(err, storekit.InvalidConfig("postgres.Schemas.Pool is nil: want a pool from pgxpool.New"))
	}
	if s.Config.Schema != "" {
		err = errors.Join(err, storekit.InvalidConfig("postgres.Schemas.Config.Schema is %q: want none, because each tenant has its own",
			s.Config.Schema))
	}
	return matches, errors.Join(err, s.Config.Validate())
}

func (s Schemas) keyOf(schema string) string {
	if s.Key == nil {
		return schema
	}
	return s.Key(schema)
}

// Open returns the store of a tenant of Tenants. Closing it leaves the pool open. Errors:
// outmill.ErrInvalidConfig.
func (s Schemas) Open(_ context.Context, tenant storekit.Tenant) (outmill.Store, error) {
	if _, err := s.check(); err != nil {
		return nil, err
	}
	id, isSchema := strings.CutPrefix(tenant.URL, schemaScheme)
	_, schema, named := strings.Cut(id, "/")
	if !isSchema || !named {
		return nil, storekit.InvalidConfig("postgres.Schemas: the tenant %q is none of its Tenants", tenant.Key)
	}
	config := s.Config
	config.Schema = schema
	if config.Name == "" {
		config.Name = "postgres"
	}
	config.Name += "/" + schema
	return New(s.Pool, config, s.Logger)
}
