// Package migrations shows the outbox's schema as a migration of goose and of golang-migrate: the
// output of "outmill schema print URL", as it is, is a file of either tool. Its test prints the
// schema, runs it with both tools on SQLite and on PostgreSQL, and publishes a message.
package migrations
