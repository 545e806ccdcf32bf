package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	"go.mongodb.org/mongo-driver/v2/bson"
	mongodriver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Databases is a discovery for package tenants: each database of one cluster whose name matches is
// a tenant. The stores share the client and, while they are listened to, one change stream of the
// whole cluster. For that a role needs the actions changeStream and find on all databases; without
// them each store has a stream of its own.
//
//	tenants.Config{Discovery: mongo.Databases{Client: client, Pattern: "tenant_*"}, Ensure: true}
//
// MongoDB has a database while it has a collection. A role needs the action listDatabases on the
// cluster, or sees only the databases in which it has rights. A database that is dropped and made
// again between two refreshes keeps its store.
type Databases struct {
	// Client is the user's, and is not disconnected. Its pool bounds the connections of all tenants
	// together.
	Client *mongodriver.Client
	// Pattern is compared with the names of databases: * stands for any characters, \* for *. All
	// other characters stand for themselves; upper and lower case differ. The databases admin, config
	// and local never match. Required.
	Pattern string
	// Key makes the key of the tenant from the name of its database. Default nil: they are the same.
	Key func(database string) string
	// Config has the settings of all stores. Its Database must be empty. The name of a store is
	// Config.Name (default "mongo"), followed by ":" and the database.
	Config Config
	// Logger is that of the stores. Nil logs nothing.
	Logger watermill.LoggerAdapter
}

const databaseScheme = "mongodb-database:"

// systemDatabases are MongoDB's own.
var systemDatabases = []string{"admin", "config", "local"}

// Tenants lists the databases with one command. Errors: outmill.ErrInvalidConfig, MongoDB's.
func (d Databases) Tenants(ctx context.Context) ([]storekit.Tenant, error) {
	matches, err := d.check()
	if err != nil {
		return nil, err
	}
	names, err := d.Client.ListDatabaseNames(ctx, bson.D{})
	if err != nil {
		return nil, fmt.Errorf("outmill/mongo: list databases: %w", err)
	}
	var list []storekit.Tenant
	for _, name := range names {
		if matches(name) && !slices.Contains(systemDatabases, name) {
			list = append(list, storekit.Tenant{Key: d.keyOf(name), URL: databaseScheme + name})
		}
	}
	return list, nil
}

func (d Databases) check() (matches func(string) bool, err error) {
	matches, err = storekit.NamePattern("mongo.Databases.Pattern", d.Pattern)
	if d.Client == nil {
		err = errors.Join(err, storekit.InvalidConfig("mongo.Databases.Client is nil: want a client from mongo.Connect"))
	}
	if d.Config.Database != "" {
		err = errors.Join(err, storekit.InvalidConfig("mongo.Databases.Config.Database is %q: want none, because each tenant has its own",
			d.Config.Database))
	}
	return matches, errors.Join(err, d.Config.Validate())
}

func (d Databases) keyOf(database string) string {
	if d.Key == nil {
		return database
	}
	return d.Key(database)
}

// Open returns the store of a tenant of Tenants. Closing it leaves the client connected. Errors:
// outmill.ErrInvalidConfig.
func (d Databases) Open(_ context.Context, tenant storekit.Tenant) (outmill.Store, error) {
	if _, err := d.check(); err != nil {
		return nil, err
	}
	name, isDatabase := strings.CutPrefix(tenant.URL, databaseScheme)
	if !isDatabase {
		return nil, storekit.InvalidConfig("mongo.Databases: the tenant %q is none of its Tenants", tenant.Key)
	}
	config := d.Config
	config.Database, config.ofCluster = name, true
	if config.Name == "" {
		config.Name = "mongo"
	}
	config.Name += ":" + name
	return New(d.Client, config, d.Logger)
}
