package sqlserver

import (
	"database/sql"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlserver/internal/driver"
	"github.com/outmill/outmill/storekit"
)

var _ outmill.Store = (*Store)(nil)

// Store is an outbox in one SQL Server database: package engine, which has the rules and the methods, on the tables of this package. It
// has all roles of package roles but Members. All methods are safe for concurrent use.
type Store struct {
	*engine.Engine
	driver *driver.Driver
	log    *storekit.Log
}

// New makes a store on the user's pool, which the user closes. The pool must use the driver
// github.com/microsoft/go-mssqldb ("sqlserver"). New does not connect. A nil logger logs nothing.
func New(db *sql.DB, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	if db == nil {
		return nil, storekit.InvalidConfig("sqlserver.New: db is nil: want a pool from sql.Open")
	}
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	return newStore(db, config, logger, nil), nil
}

// newStore returns a store. Its Close calls end, if that is not nil.
func newStore(db *sql.DB, config Config, logger watermill.LoggerAdapter, end func() error) *Store {
	log := storekit.NewLog(logger, config.Name, config.AppendLogLevel)
	s := &Store{log: log, driver: driver.New(db, driver.Config{
		Name: config.Name, Schema: config.Schema, Table: config.Table, TxFromContext: config.TxFromContext, Log: log, End: end,
	})}
	s.Engine = engine.New(s.driver, engine.Config{
		Name: config.Name, Retain: config.Retain, RetainJoins: config.RetainJoins, RetainAudit: config.RetainAudit,
		DedupWindow: config.DedupWindow, MaxPayload: config.MaxPayload, Logger: logger, AppendLogLevel: config.AppendLogLevel,
		FairTopics: config.FairTopics, EnsureSchema: config.EnsureSchema, AtOnce: config.atOnce,
	})
	return s
}

// DB returns the pool of connections, for the user's own tables. If the store opened the pool, it
// stays open until Close.
func (s *Store) DB() *sql.DB { return s.driver.DB() }

// RawClaims returns the raw claims of this store. See roles.Raw.
func (s *Store) RawClaims(queue outmill.Queue) roles.RawClaims { return s.RawOf(s, queue) }

// Grants returns the T-SQL that gives a role, or a user, of the database the rights that the store
// needs: SELECT, INSERT, UPDATE and DELETE on its tables, and EXECUTE on its functions, procedures
// and table types. The owner of the schema runs it once after each Ensure that brought a new version.
// docs/sqlserver.md has the same statements with the default names.
//
// Ensure needs more: CREATE TABLE, CREATE VIEW, CREATE TYPE, CREATE FUNCTION and CREATE PROCEDURE in
// the database, ALTER on the schema, REFERENCES on it for the table type that the procedures take, and
// CREATE SCHEMA if Config.Schema does not exist. So let a deployment job with these rights call Ensure,
// and give the program the rights of Grants. The views OutboxReadable, OutboxJoin and OutboxJoinMember
// are for people, who need SELECT on them.
func (s *Store) Grants(role string) []string { return s.driver.Grants(role) }
