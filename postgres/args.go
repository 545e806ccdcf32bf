package postgres

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// literal converts an argument to a type that every driver of database/sql accepts: a list
// becomes PostgreSQL's text form of an array, which the statements cast.
func literal(arg any) any {
	switch list := arg.(type) {
	case []string:
		return array(list, quote)
	case [][]byte:
		return array(list, func(into []byte, item []byte) []byte {
			return append(hex.AppendEncode(append(into, `"\\x`...), item), '"')
		})
	case []int64:
		return numbers(list)
	case []bool:
		return array(list, strconv.AppendBool)
	}
	return arg
}

func array[T any](list []T, item func(into []byte, item T) []byte) string {
	text := make([]byte, 1, 2+8*len(list))
	text[0] = '{'
	for i, x := range list {
		if i > 0 {
			text = append(text, ',')
		}
		text = item(text, x)
	}
	return string(append(text, '}'))
}

// numbers returns the list as a text, which is also faster for pgx: it encodes a list with two
// allocations for each number.
func numbers[T int | int64](list []T) string {
	return array(list, func(into []byte, item T) []byte { return strconv.AppendInt(into, int64(item), 10) })
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func quote(into []byte, item string) []byte {
	into = append(into, '"')
	into = append(into, escape.Replace(item)...)
	return append(into, '"')
}
