// Package postgres is the outbox store on PostgreSQL 14 and later, by pgx. It
// implements outmill.Store and outmill.Waker.
package postgres
