package example

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Column has the items that one part of an example has seen, in any order.
type Column struct {
	Name string
	Seen []string
}

// Compare prints the columns, and returns an error unless each has exactly the wanted items.
func Compare(out io.Writer, want []string, columns ...Column) error {
	wanted := list(want)
	var wrong []string
	for _, column := range columns {
		seen := list(column.Seen)
		fmt.Fprintf(out, "%-13s %s\n", column.Name+":", seen)
		if seen != wanted {
			wrong = append(wrong, column.Name)
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("want %s, but got another result for: %s", wanted, strings.Join(wrong, " and "))
	}
	fmt.Fprintln(out, "OK: what was committed was delivered, and nothing else")
	return nil
}

func list(items []string) string {
	return strings.Join(slices.Sorted(slices.Values(items)), ", ")
}
