package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/outmill/outmill/engine/driver"
)

// values are the columns of a row as SQLite has them: int64, float64, string, []byte or nil. A column of a record
// may hold any of these, whatever its declared type. Reading into them is also faster than into fields, for which
// database/sql would convert numbers to text and back.
type values struct {
	names []string
	got   []any
	into  []any
	// wrong says which columns have values of another type than their fields.
	wrong *string
}

func newValues(names []string) values {
	v := values{names: names, got: make([]any, len(names)), into: make([]any, len(names)), wrong: new(string)}
	for i := range v.got {
		v.into[i] = &v.got[i]
	}
	return v
}

// columns are the names of a list of columns.
func columns(list string) []string {
	names := strings.Split(list, ",")
	for i, name := range names {
		names[i] = strings.TrimPrefix(strings.TrimLeft(name, " \n\t+"), "r.")
	}
	return names
}

// broken says what was wrong since the last call.
func (v values) broken() string {
	wrong := *v.wrong
	*v.wrong = ""
	return wrong
}

// bad is broken as an error.
func (v values) bad() error {
	if wrong := v.broken(); wrong != "" {
		return errors.New(wrong)
	}
	return nil
}

func (v values) refuse(column int, want string) {
	if *v.wrong != "" {
		*v.wrong += "; "
	}
	*v.wrong += fmt.Sprintf("column %s: want %s, have %s", v.names[column], want, kindOf(v.got[column]))
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

func (v values) number(column int) int64 {
	n, ok := v.got[column].(int64)
	if !ok {
		v.refuse(column, "an integer")
	}
	return n
}

func (v values) count(column int) int {
	n := v.number(column)
	if n < 0 {
		v.refuse(column, "a number from 0 on")
		return 0
	}
	return int(n)
}

func (v values) time(column int) driver.Time {
	at := driver.Time(v.number(column))
	if at < -driver.Never || at > driver.Never {
		v.refuse(column, "a time")
		return 0
	}
	return at
}

func (v values) stage(column int) driver.Stage {
	stage := driver.Stage(v.number(column))
	if stage < driver.Ready || stage > driver.Dead {
		v.refuse(column, "a stage")
		return 0
	}
	return stage
}

func (v values) truth(column int) bool { return v.number(column) != 0 }

func (v values) text(column int) string {
	text, ok := v.got[column].(string)
	if !ok {
		v.refuse(column, "text")
	}
	return text
}

// maybe is "" for NULL.
func (v values) maybe(column int) string {
	if v.got[column] == nil {
		return ""
	}
	return v.text(column)
}

// seq is a Seq, or driver.None for NULL.
func (v values) seq(column int) int64 {
	if v.got[column] == nil {
		return driver.None
	}
	return v.number(column)
}

// id is zero for NULL.
func (v values) id(column int) (id uuid.UUID) {
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
func (v values) bytes(column int) []byte {
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

// Lists are JSON, so that a statement is the same for every length.

// jsonOf never fails: a text or a number becomes JSON.
func jsonOf(value any) string {
	text, _ := json.Marshal(value)
	return string(text)
}

func seqList(n int, seq func(i int) int64) string {
	text := append(make([]byte, 0, 2+10*n), '[')
	for i := range n {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, seq(i), 10)
	}
	return string(append(text, ']'))
}
