package sqlkit

import (
	"database/sql"
	"fmt"
)

// Text scans a text column in which NULL stands for the empty string.
func Text(into *string) sql.Scanner { return (*text)(into) }

// OrNull returns the value for such a column.
func OrNull(value string) any {
	if value == "" {
		return nil
	}
	return value
}

type text string

// Scan implements sql.Scanner.
func (t *text) Scan(src any) error {
	switch src := src.(type) {
	case nil:
		*t = ""
	case string:
		*t = text(src)
	case []byte:
		*t = text(src)
	default:
		return fmt.Errorf("a column of text has a %T", src)
	}
	return nil
}
