package driver

import (
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// MaxStatement is the largest size of a statement with its arguments. PostgreSQL's limit is 1 GiB.
const MaxStatement = 1<<30 - 1<<20

const sqlAppend = `SELECT {p:append}($1::text[], $2::bytea[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
	$9::text[], $10::text[], $11::text[], $12::timestamptz[], $13::bigint[], $14::timestamptz[], $15::bigint[], $16::bigint, $17::boolean)`

// AppendSQL is a statement that calls the function append of a schema.
func AppendSQL(schema, prefix string) string {
	return (&names{schema: schema, prefix: prefix}).in(sqlAppend)
}

// AppendArgs returns the arguments of AppendSQL but for the last two, in a form that every driver of database/sql takes. secret marks
// those that nobody may print.
func AppendArgs(records []*outmill.Record, metadata []string, secret func(text string) any) []any {
	texts := func(of func(r *outmill.Record) string) any {
		return literal(textsOf(records, func(r **outmill.Record) string { return of(*r) }))
	}
	times := func(of func(r *outmill.Record) time.Time) any {
		return listOf(records, func(into []byte, r **outmill.Record) []byte {
			if at := of(*r); !at.IsZero() {
				return at.UTC().AppendFormat(into, `"2006-01-02T15:04:05.999999Z07:00"`)
			}
			return append(into, "NULL"...)
		})
	}
	durations := func(of func(r *outmill.Record) time.Duration) any {
		return numbersOf(records, func(r **outmill.Record) int64 { return of(*r).Microseconds() })
	}
	payloads := listOf(records, func(into []byte, r **outmill.Record) []byte {
		if (*r).Payload == nil {
			return append(into, "NULL"...)
		}
		return appendBytes(into, (*r).Payload)
	})
	return []any{
		texts(func(r *outmill.Record) string { return r.Topic }), secret(payloads),
		texts(func(r *outmill.Record) string { return r.Key }), secret(objects(metadata)),
		texts(func(r *outmill.Record) string { return r.MessageID }), texts(func(r *outmill.Record) string { return r.DedupKey }),
		texts(func(r *outmill.Record) string { return r.TenantID }), texts(func(r *outmill.Record) string { return r.CorrelationID }),
		texts(func(r *outmill.Record) string { return r.CausationID }), texts(func(r *outmill.Record) string { return r.TraceParent }),
		texts(func(r *outmill.Record) string { return r.TraceState }),
		times(func(r *outmill.Record) time.Time { return r.DueAt }), durations(func(r *outmill.Record) time.Duration { return r.Delay }),
		times(func(r *outmill.Record) time.Time { return r.ExpiresAt }), durations(func(r *outmill.Record) time.Duration { return r.TimeToLive }),
	}
}

// objects is a list of JSON objects, "" being none.
func objects(metadata []string) string {
	return listOf(metadata, func(into []byte, object *string) []byte {
		if *object == "" {
			return append(into, "NULL"...)
		}
		return appendText(into, object)
	})
}

// AppendLimits are those of the records of one statement.
func AppendLimits() storekit.RowLimits {
	return storekit.RowLimits{Row: MaxStatement, Metadata: MaxStatement, PayloadTimes: 2}
}
