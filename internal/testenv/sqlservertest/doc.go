// Package sqlservertest provides databases for tests on the SQL Server that
// OUTMILL_TEST_SQLSERVER_URL names, which may be Babelfish for PostgreSQL: see
// Server. Tests never share a database.
package sqlservertest
