package sqlkit

import (
	"bytes"
	"database/sql"
	"fmt"
)

// Bytes scans a column of bytes in which NULL stands for nil. Some drivers return an empty value
// as a nil slice; it stays empty here.
func Bytes(into *[]byte) sql.Scanner { return (*blob)(into) }

type blob []byte

// Scan implements sql.Scanner. It copies the bytes, which belong to the driver.
func (b *blob) Scan(src any) error {
	switch src := src.(type) {
	case nil:
		*b = nil
	case string:
		*b = blob(src)
	case []byte:
		if *b = bytes.Clone(src); src == nil {
			*b = blob{}
		}
	default:
		return fmt.Errorf("a column of bytes has a %T", src)
	}
	return nil
}
