package driver

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/outmill/outmill/engine/driver"
)

// values are the columns of a row as SQLite has them: int64, float64, string, []byte or nil. A column of a record
// may hold any of these, whatever its declared type. Reading into them is also faster than into fields, for which
// database/sql would convert numbers to text and back.
type values struct {
	names     []string
	got, into []any
	// wrong says which columns have values of another type than their fields.
	wrong string
}

func newValues(rows *sql.Rows) (*values, error) {
	names, err := rows.Columns()
	v := &values{names: names, got: make([]any, len(names)), into: make([]any, len(names))}
	for i := range v.got {
		v.into[i] = &v.got[i]
	}
	return v, err
}

// broken says what was wrong since the last call.
func (v *values) broken() (wrong string) {
	wrong, v.wrong = v.wrong, ""
	return wrong
}

func (v *values) refuse(column int, want string) {
	if v.wrong != "" {
		v.wrong += "; "
	}
	name := strings.TrimPrefix(strings.TrimLeft(v.names[column], "+"), "r.")
	v.wrong += fmt.Sprintf("column %s: want %s, have %s", name, want, kindOf(v.got[column]))
}

// kindOf shows a number, and of other values only the type: they may be parts of messages.
func kindOf(value any) string {
	switch value := value.(type) {
	case nil:
		return "NULL"
	case string:
		return "text"
	case []byte:
		return "a blob"
	default:
		return fmt.Sprint(value)
	}
}

func (v *values) number(column int) int64 {
	n, ok := v.got[column].(int64)
	if !ok {
		v.refuse(column, "an integer")
	}
	return n
}

func (v *values) count(column int) int        { return int(v.number(column)) }
func (v *values) time(column int) driver.Time { return driver.Time(v.number(column)) }
func (v *values) truth(column int) bool       { return v.number(column) != 0 }

// text is "" for NULL.
func (v *values) text(column int) string {
	text, ok := v.got[column].(string)
	if !ok && v.got[column] != nil {
		v.refuse(column, "text")
	}
	return text
}

// seq is a Seq, or driver.None for NULL.
func (v *values) seq(column int) int64 {
	if v.got[column] == nil {
		return driver.None
	}
	return v.number(column)
}

// id is zero for NULL.
func (v *values) id(column int) (id uuid.UUID) {
	if v.got[column] == nil {
		return id
	}
	text, ok := v.got[column].(string)
	id, err := uuid.Parse(text)
	if !ok || err != nil {
		v.refuse(column, "an id")
		return uuid.UUID{}
	}
	return id
}

// bytes are nil for NULL. A text that somebody has written by hand is taken as it is.
func (v *values) bytes(column int) []byte {
	switch value := v.got[column].(type) {
	case nil:
		return nil
	case []byte:
		// database/sql has copied it.
		if value == nil {
			return []byte{}
		}
		return value
	case string:
		return []byte(value)
	}
	v.refuse(column, "a blob")
	return nil
}

// jsonOf is a list as JSON, so that a statement is the same for every length. It never fails: a text or a number becomes JSON.
func jsonOf(value any) string {
	text, _ := json.Marshal(value)
	return string(text)
}

// listOf is jsonOf for a part of each item.
func listOf[T, V any](items []T, of func(item *T) V) string {
	list := make([]V, len(items))
	for i := range items {
		list[i] = of(&items[i])
	}
	return jsonOf(list)
}

func seqsOf(rows []driver.Row) string {
	return listOf(rows, func(r *driver.Row) int64 { return r.Seq })
}
