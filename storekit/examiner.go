package storekit

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// StoreFinding is the finding for the error of a store that could not be examined. The text of
// the error is not part of it, because it can hold an address or a credential.
func StoreFinding(err error) roles.Finding {
	f := roles.Finding{Failure: true}
	switch {
	case errors.Is(err, outmill.ErrSchemaMissing):
		f.Code, f.Text = "schema_missing", "The store has no tables."
		f.Remedy = "Call Ensure, run outmill schema ensure, or run the statements of Statements with your migration tool."
	case errors.Is(err, outmill.ErrSchemaOutdated):
		f.Code, f.Text = "schema_outdated", "The schema is older than this program."
		f.Remedy = "Call Ensure, run outmill schema upgrade, or run the statements of StatementsFrom with your migration tool."
	case errors.Is(err, outmill.ErrSchemaNewer):
		f.Code, f.Text = "schema_newer", "The schema is newer than this program."
		f.Remedy = "Deploy the version of Outmill that made the schema, or a newer one."
	case errors.Is(err, fs.ErrNotExist):
		f.Code, f.Text = "file_missing", "The file of the database does not exist."
		f.Remedy = "Check its path, or create the store with outmill schema ensure."
	case errors.Is(err, ErrReadOnly):
		f.Code, f.Text = "read_only", "The server accepts no writes, as a standby, or as the former primary after a failover."
		f.Remedy = "Check that the URL leads to the primary. The store closes such connections of its own, and opens others; if yours " +
			"stay open, close them: Reset of a pgxpool.Pool, SetConnMaxLifetime of a *sql.DB."
	case errors.Is(err, outmill.ErrClosed):
		f.Code, f.Text = "store_closed", "The program has closed the store."
		f.Remedy = "Restart the program, if it does not end by itself."
	default:
		f.Code, f.Text = "store_unreachable", "The store does not answer."
		f.Remedy = "Check that the database runs, that the network reaches it and that the user may read the tables."
	}
	return f
}

// MissingPart is the finding for a part of the schema that is missing. kind is table, index,
// function or the like, and the code is kind_missing. effect is a sentence that says what does
// not work without it. A failure means that calls fail; otherwise they are slow.
func MissingPart(kind, name, effect string, failure bool) roles.Finding {
	return roles.Finding{
		Code: kind + "_missing", Subject: name, Failure: failure,
		Text:   fmt.Sprintf("The schema has no %s %s. %s", kind, name, effect),
		Remedy: "Create it again with its statement, which outmill schema print shows.",
	}
}
