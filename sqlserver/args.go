package sqlserver

import (
	"database/sql"
	"strings"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// The rows of the table types: their fields are the columns, in order.
type (
	newRow struct {
		Place                                int64
		ID                                   string
		IDBytes                              []byte
		Group                                sql.NullString
		Topic, Key                           string
		Size                                 int64
		DueAt                                sql.NullString
		DueAfter                             sql.NullInt64
		ExpiresAt                            sql.NullString
		ExpiresAfter                         sql.NullInt64
		MessageID                            string
		CorrelationID, CausationID, TenantID sql.NullString
		TraceParent, TraceState              sql.NullString
		DedupKey                             string
		Step                                 []byte
		Joins                                sql.NullString
		WaitsFor                             []byte
		Metadata                             sql.NullString
		Payload                              []byte
	}
	leaseRow struct {
		IDBytes []byte
		Owner   string
		Claims  int64
		Number  int64
		Error   string
	}
	idRow   struct{ IDBytes []byte }
	nameRow struct {
		Place int64
		Name  string
	}
	noteRow struct {
		Place     int64
		Key       string
		BlockedBy string
		Until     sql.NullString
		Barrier   int64
		Head      int64
		PausedBy  sql.NullInt64
	}
	decisionRow struct {
		Seq      int64
		Decision string
		PausedBy sql.NullInt64
	}
	memberRow struct {
		Join      []byte
		JoinID    string
		Step      []byte
		MessageID string
		Open      int64
	}
)

// set is a table-valued parameter.
func set[T any](s *Store, name, typeName string, rows []T) any {
	if rows == nil {
		rows = []T{}
	}
	return named(name, mssql.TVP{TypeName: s.sql.typeName(typeName), Value: rows})
}

// text is a text in a table-valued parameter. Babelfish 4.4 puts such texts into a statement
// without doubling their quotes.
func (s *Store) text(value string) string {
	if s.babelfish.Load() {
		return strings.ReplaceAll(value, "'", "''")
	}
	return value
}

func (s *Store) names(values []string) []nameRow {
	rows := make([]nameRow, len(values))
	for i, value := range values {
		rows[i] = nameRow{int64(i), s.text(value)}
	}
	return rows
}

// leaseRows has a number for each lease: the delay in microseconds, or 1 for a record that parks
// its key.
func (s *Store) leaseRows(items []outmill.Settlement) []leaseRow {
	rows := make([]leaseRow, len(items))
	for i, item := range items {
		rows[i] = leaseRow{
			IDBytes: item.Lease.ID[:], Owner: item.Lease.Owner.String(), Claims: int64(item.Lease.Claim),
			Number: sqlkit.CeilMicros(item.Delay), Error: s.text(item.Err),
		}
		if item.Park {
			rows[i].Number = 1
		}
	}
	return rows
}

// some is a text, or NULL if the text is empty.
func some(text string) sql.NullString { return sql.NullString{String: text, Valid: text != ""} }
