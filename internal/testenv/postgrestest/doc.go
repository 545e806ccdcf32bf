// Package postgrestest provides real PostgreSQL servers for tests. It uses, in this order,
// the server that OUTMILL_TEST_POSTGRES_URL names, a server that listens at 127.0.0.1:5432
// and trusts the user postgres, and a server that it starts with the machine's programs or
// with downloaded ones. OUTMILL_TEST_POSTGRES_VERSIONS names versions to run on: see Each.
//
// Tests never share a database or a schema: see Database and Schema.
package postgrestest
