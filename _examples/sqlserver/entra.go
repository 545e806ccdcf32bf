package main

import (
	"database/sql"
	"fmt"
	"net/url"

	"github.com/microsoft/go-mssqldb/azuread"

	"github.com/outmill/outmill"
)

// openPool opens a pool on the database, or on that of the URL. With a parameter
// fedauth, such as
//
//	sqlserver://shop.database.windows.net?encrypt=true&fedauth=ActiveDirectoryDefault
//
// the login is Microsoft Entra ID's (Azure AD): the driver's package azuread
// takes care of it, and the store does not notice. A URL without it is the
// driver's as ever; a program that needs no Entra ID opens it with
// sql.Open("sqlserver", url), and goes without the packages of Azure.
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
