package monitor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// WhyDuplicate explains why a store skips messages of the topic with the dedup key: it names the
// record that took the key and the end of the dedup window, and explains that record as [Why]
// does. A skipped message leaves no record, so Why cannot find it. Answer.ID is the dedup key.
//
// If the store does not remember the key, or the record is gone, Answer.Text says it; this is
// not an error. A store without the role storekit.DedupKeys is an error that names the store.
func WhyDuplicate(ctx context.Context, store outmill.Inspector, topic, dedupKey string, config WhyConfig) (Answer, error) {
	if outmill.IsNil(store) {
		return Answer{}, storekit.InvalidConfig("WhyDuplicate: the store is nil: pass an open store")
	}
	keys, ok := outmill.As[storekit.DedupKeys](store)
	if !ok {
		return Answer{}, fmt.Errorf("outmill: the store %T keeps no dedup keys that can be read", store)
	}
	found, err := keys.DedupKey(ctx, topic, dedupKey)
	if errors.Is(err, outmill.ErrNotFound) {
		return Answer{ID: dedupKey, At: time.Now().UTC(), Complete: true, Explanations: []Explanation{},
			Text: fmt.Sprintf("The store does not remember the dedup key %s of topic %s: no committed message had it, or its window has ended. "+
				"The next message with it is stored.", quote(dedupKey), quote(topic))}, nil
	}
	if err != nil {
		return Answer{}, err
	}
	answer, err := Why(ctx, store, found.Record.String(), config)
	if storekit.NoneAnswered(err) {
		return Answer{}, err
	}
	of := ""
	if found.Store != "" {
		of = " of store " + quote(found.Store)
	}
	answer.ID = dedupKey
	answer.Text = fmt.Sprintf("Record %s%s took the dedup key. Until %s the store skips messages of topic %s that have the key. %s",
		found.Record, of, why{now: answer.At}.at(found.ExpiresAt), quote(topic), answer.Text)
	return answer, err
}
