package main

import (
	"database/sql"
	"fmt"
	"net/url"

	"github.com/microsoft/go-mssqldb/azuread"

	"github.com/outmill/outmill"
)

// openPool opens a pool on the database, or on the database of the URL if it is empty. A URL with
// the parameter fedauth, such as
//
//	sqlserver://shop.database.windows.net?encrypt=true&fedauth=ActiveDirectoryDefault
//
// logs in with Microsoft Entra ID (Azure AD). The driver's package azuread does this, and the store
// needs no change. A URL without fedauth works as always. A program that does not need Entra ID opens
// the pool with sql.Open("sqlserver", url) and does not compile the packages of Azure.
func openPool(address, database string) (*sql.DB, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "sqlserver" {
		return nil, fmt.Errorf("-database is %s: want a URL such as sqlserver://user:password@localhost:1433", outmill.RedactURL(address))
	}
	if database != "" {
		query := parsed.Query()
		query.Set("database", database)
		parsed.RawQuery = query.Encode()
	}
	connector, err := azuread.NewConnector(parsed.String())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", outmill.RedactURL(address), err)
	}
	return sql.OpenDB(connector), nil
}
