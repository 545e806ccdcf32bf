package sqlserver

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	mssql "github.com/microsoft/go-mssqldb"
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
// ID, open the pool with the driver's package azuread, and pass it to New.
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
	// The times in the tables are UTC, whatever the driver's parameter timezone is.
	parsed.Encoding.Timezone = time.UTC
	db := sql.OpenDB(mssql.NewConnectorConfig(parsed))
	store, err := New(db, config, logger)
	if err == nil {
		err = db.PingContext(ctx)
	}
	if err == nil && config.EnsureSchema {
		err = store.Ensure(ctx)
	}
	if err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("outmill/sqlserver: open: %w", err)
	}
	store.ownsDB = true
	return store, nil
}
