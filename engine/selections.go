package engine

import (
	"encoding/json"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// selections are the selections of topics of several groups.
type selections []outmill.Topics

// othersIn returns the selections of all groups but this one.
func othersIn(t *storekit.RoutingTable, group string) selections {
	others := selections{}
	for _, r := range t.Registrations {
		if r.Group != group {
			others = append(others, r.Topics)
		}
	}
	return others
}

// match reports whether one of the selections has the topic.
func (s selections) match(topic string) bool {
	return slices.ContainsFunc(s, func(topics outmill.Topics) bool { return topics.Match(topic) })
}

// String returns the selections as a text for a note, which is never empty.
func (s selections) String() string {
	// Lists of strings always marshal.
	text, _ := json.Marshal(s)
	return string(text)
}

// parseSelections returns the selections of a text of String.
func parseSelections(text string) (selections, error) {
	var s selections
	err := json.Unmarshal([]byte(text), &s)
	return s, err
}
