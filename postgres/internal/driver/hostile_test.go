package driver_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/roles"
)

// hostileSchema makes a schema evil, with functions, operators and types that have the names of PostgreSQL's.
func hostileSchema(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	execute(t, db, "CREATE SCHEMA evil")
	for name, args := range map[string]string{
		"substr": "text, integer", "length": "text", "unnest": "text[]", "now": "", "pg_notify": "text, text", "pg_current_xact_id": "",
		"nextval": "regclass", "current_setting": "text", "set_config": "text, text, boolean", "get_bit": "bit varying, integer",
	} {
		execute(t, db, "CREATE FUNCTION evil."+name+"("+args+") RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$")
	}
	for _, of := range []string{"bigint, bigint", "integer, integer", "smallint, integer", "text, text", "uuid, uuid"} {
		execute(t, db, "CREATE FUNCTION evil.is("+of+") RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$")
		left, right, _ := strings.Cut(of, ", ")
		for _, operator := range []string{"=", "<>", "<", ">", "<=", ">=", "~~"} {
			execute(t, db, "CREATE OPERATOR evil."+operator+" (FUNCTION = evil.is, LEFTARG = "+left+", RIGHTARG = "+right+")")
		}
	}
	execute(t, db, "CREATE FUNCTION evil.plus(bigint, bigint) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$")
	for _, operator := range []string{"+", "-"} {
		execute(t, db, "CREATE OPERATOR evil."+operator+" (FUNCTION = evil.plus, LEFTARG = bigint, RIGHTARG = bigint)")
	}
	for _, name := range []string{"text", "uuid", "bytea", "meta", "events"} {
		execute(t, db, "CREATE TYPE evil."+name+" AS (x integer)")
	}
}

// TestNote_OnAHostileSearchPath also has the lease of a record and that of a row of the log, of which the note asks.
func TestNote_OnAHostileSearchPath(t *testing.T) {
	t.Parallel()
	url := postgrestest.Database(t)
	s := storeOn(t, connect(t, url, 4, nil))
	require.NoError(t, s.Ensure(t.Context()))
	require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: "readers"}))
	require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: "orders"}))
	require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: "bills", ID: outmill.NewWorkItemID()}))
	leased := claimedFrom(t, s, "readers")
	leased = append(leased, claimedFrom(t, s, "readers")...)
	require.Len(t, leased, 2)
	hostileSchema(t, s.db)
	db := connect(t, url, 1, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = "evil, pg_catalog" })
	for _, lease := range []outmill.Lease{{}, leased[0].Lease(), leased[1].Lease()} {
		require.NoError(t, pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
			note := roles.Note{Consumer: "w", Key: "k" + lease.ID.String(), Retention: time.Hour, Lease: lease}
			duplicate, err := s.PutNote(s.driver.WithTx(t.Context(), tx), note, time.Second)
			require.False(t, duplicate)
			return err
		}))
	}
	require.Equal(t, "evil, pg_catalog", valueOf[string](t, db, "SHOW search_path"))
}
