// Package sqlservertest provides databases for tests on the SQL Server that
// OUTMILL_TEST_SQLSERVER_URL names. Tests never share a database.
package sqlservertest
