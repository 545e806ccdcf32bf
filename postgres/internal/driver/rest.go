package driver

import (
	"context"
	_ "embed"
	"encoding/json"
	"time"

	"github.com/outmill/outmill/engine/driver"
)

// restFunctions answer for several schemas with one statement whether their stores rest.
//
//go:embed log_rest.sql
var restFunctions string

var _ driver.Rester = (*Driver)(nil)

const (
	// longRest is a rest of which no end is known.
	longRest = time.Hour
	// cannotTell has the engine search.
	cannotTell = -1
)

// restAsk is the argument of the function resting.
type restAsk struct {
	Version   int         `json:"version"`
	Processed int64       `json:"processed"`
	Ends      []restEnd   `json:"ends"`
	Stamp     int64       `json:"stamp"`
	Topics    []string    `json:"topics"`
	Chains    []restChain `json:"chains"`
	Small     int64       `json:"small"`
}

type restEnd struct {
	Kind string `json:"kind"`
	Kept int64  `json:"kept"`
}

type restChain struct {
	Topic  string `json:"topic"`
	Chain  int64  `json:"chain"`
	Pos    int64  `json:"pos"`
	Seen   string `json:"seen"`
	Unread bool   `json:"unread"`
}

// Resting asks the schemas with one statement. A process that does not know the history or the topics of a log cannot tell; the search that
// the engine then makes reads both. See driver.Rester.
func (d *Driver) Resting(ctx context.Context, stores []driver.Rest) ([]time.Duration, error) {
	lasts := make([]time.Duration, len(stores))
	var calls, asks []string
	var asked []int
	var names []*names
	for i, s := range stores {
		lasts[i] = cannotTell
		other, ok := s.DB.(*Driver)
		if !ok {
			continue
		}
		if ask, known := other.restAsk(s); known {
			// It is made of numbers and texts, which always marshal.
			text, _ := json.Marshal(ask)
			calls, asks = append(calls, other.names.qualified("resting")), append(asks, string(text))
			asked, names = append(asked, i), append(names, other.names)
		}
	}
	if len(asked) == 0 {
		return lasts, nil
	}
	answers, err := d.askTogether(ctx, names, calls, asks)
	for i := range min(len(answers), len(asked)) {
		switch answers[i] {
		case 't':
			lasts[asked[i]] = longRest
		case 'f':
			lasts[asked[i]] = 0
		}
	}
	return lasts, err
}

// askTogether calls resting_of in the first of the schemas that has it.
func (d *Driver) askTogether(ctx context.Context, all []*names, calls, asks []string) (answers string, err error) {
	for _, names := range all {
		// The function has its settings.
		one := step{text: names.text("log_resting", false), args: []any{calls, asks}}
		err = d.send(ctx, func(scan func(...any) error) error { return scan(&answers) }, one)
		if code(err) != codeNoFunction && code(err) != codeNoSchema {
			return answers, err
		}
	}
	return "", nil
}

// restAsk is what to ask of the store.
func (d *Driver) restAsk(s driver.Rest) (ask restAsk, known bool) {
	h, topics := d.log.history.Load(), d.log.topics.Load()
	if h == nil || topics == nil {
		return ask, false
	}
	ask = restAsk{
		Version: schemaVersion, Processed: s.Processed.Microseconds(), Stamp: h.stamp, Topics: []string{}, Chains: []restChain{},
		Small: d.log.keeper.Small(),
	}
	for _, end := range s.Ends {
		ask.Ends = append(ask.Ends, restEnd{end.Kind, end.Kept.Microseconds()})
	}
	for _, line := range *topics {
		ask.Topics = append(ask.Topics, line.Name())
		for _, c := range h.all(line) {
			ask.Chains = append(ask.Chains, restChain{c.topic, c.chain, c.begin.pos, c.begin.seen, c.unread})
		}
	}
	return ask, true
}
