package sqlkit

import (
	"database/sql"
	"fmt"
	"strconv"

	"github.com/outmill/outmill/engine/driver"
)

// Scan reads the columns of a row of a result.
type Scan = func(into ...any) error

// Into returns what appends to found each row of a result that it reads.
func Into[T any](found *[]T, read func(scan Scan, item *T) error) func(scan Scan) error {
	return func(scan Scan) error {
		var item T
		err := read(scan, &item)
		*found = append(*found, item)
		return err
	}
}

// One reads the only column of a row.
func One[T any](scan Scan, item *T) error { return scan(item) }

// LineIn returns what reads the name of a line of a group.
func LineIn(group string) func(scan Scan, line *driver.Line) error {
	return func(scan Scan, line *driver.Line) error {
		var name string
		err := scan(&name)
		*line = driver.LineOf(group, name)
		return err
	}
}

// ReadEntry reads the kind, the key, the two times and the value of an entry.
func ReadEntry(scan Scan, e *driver.Entry) error {
	return scan(&e.Kind, &e.Key, (*int64)(&e.At), (*int64)(&e.Made), &e.Value)
}

// Mapped returns what of makes of each item.
func Mapped[T, V any](items []T, of func(*T) V) []V {
	list := make([]V, len(items))
	for i := range items {
		list[i] = of(&items[i])
	}
	return list
}

// Truth scans a column that is 0 or 1, or another number that somebody has written by hand, which is true as well.
func Truth(into *bool) sql.Scanner { return (*truth)(into) }

type truth bool

// Scan implements sql.Scanner.
func (t *truth) Scan(src any) error {
	switch src := src.(type) {
	case bool:
		*t = truth(src)
	case int64:
		*t = src != 0
	case []byte:
		n, err := strconv.ParseInt(string(src), 10, 64)
		*t = n != 0
		return err
	default:
		return fmt.Errorf("a column of a truth has a %T", src)
	}
	return nil
}
