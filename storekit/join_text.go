package storekit

import (
	"fmt"
	"strings"

	"github.com/outmill/outmill"
)

// JoinsText returns the joins of a record for a text column: their ids, separated by
// commas; "" for none.
func JoinsText(joins []outmill.JoinID) string {
	if len(joins) == 0 {
		return ""
	}
	names := make([]string, len(joins))
	for i, id := range joins {
		names[i] = id.String()
	}
	return strings.Join(names, ",")
}

// ParseJoins parses the text of JoinsText.
func ParseJoins(text string) ([]outmill.JoinID, error) {
	if text == "" {
		return nil, nil
	}
	var joins []outmill.JoinID
	for name := range strings.SplitSeq(text, ",") {
		id, err := outmill.ParseJoinID(name)
		if err != nil {
			return nil, fmt.Errorf("joins: %w", err)
		}
		joins = append(joins, id)
	}
	return joins, nil
}
