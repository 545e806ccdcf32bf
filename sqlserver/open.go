package sqlserver

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/microsoft/go-mssqldb/msdsn"

	"github.com/outmill/outmill/storekit"
)

// Open opens a pool of connections, and makes a store on it, whose Close closes the pool. Open
// does not create the schema, unless Config.EnsureSchema is set: see Ensure. A nil logger logs
// nothing.
//
// database is a URL such as sqlserver://user:password@host:1433?database=orders&encrypt=true, or
// an ADO or ODBC connection string, as for the driver. Its settings for TLS (encrypt,
// TrustServerCertificate, certificate, hostNameInCertificate, tlsmin) apply. For Microsoft Entra
// ID, open the pool with the driver's package azuread, and pass it to New. If the context has a
// storekit.ConnectionBudget, as that of tenants.Config.Open can have, the pool takes its connections from it.
func Open(ctx context.Context, database string, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	parsed, err := msdsn.Parse(database)
	if err != nil {
		return nil, storekit.InvalidConfig("sqlserver.Open: %w", err)
	}
	if config.Name == "" && parsed.Database != "" {
		config.Name = "sqlserver:" + parsed.Database
		if config.Schema != "" && config.Schema != DefaultSchema {
			config.Name += "/" + config.Schema
		}
	}
	db, leave := openWithin(ctx, parsed)
	end := func() error {
		defer leave()
		return db.Close()
	}
	config.setDefaults()
	store := newStore(db, config, logger, end)
	err = db.PingContext(ctx)
	if err == nil && config.EnsureSchema {
		err = store.Ensure(ctx)
	}
	if err != nil {
		_ = store.Close()
		return nil, fmt.Errorf("outmill/sqlserver: open: %w", err)
	}
	return store, nil
}
