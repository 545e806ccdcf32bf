package storekit

import (
	"context"

	"github.com/outmill/outmill"
)

type contentKey struct{}

type wanted struct{ payload, metadata bool }

// ContentOf says what the Records of a FindStore and the Letters of a WorkbenchStore have to read beside what
// Matches compares. A store that always reads all does not ask.
func ContentOf(ctx context.Context) (payload, metadata bool) {
	w, _ := ctx.Value(contentKey{}).(wanted)
	return w.payload, w.metadata
}

func withContent(ctx context.Context, query outmill.ListQuery) context.Context {
	ofContract := query.Contract != "" || query.ContractVersion != 0
	return context.WithValue(ctx, contentKey{}, wanted{query.Content, query.Content || ofContract})
}
