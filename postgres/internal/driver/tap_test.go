package driver_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

// tap notes the statements that are sent with a context of harness.Tap.
type tap struct{}

var (
	_ pgx.QueryTracer    = tap{}
	_ pgx.BatchTracer    = tap{}
	_ pgx.CopyFromTracer = tap{}
)

type tapKey struct{}

// trips are the values of each round trip.
type trips struct {
	mu   sync.Mutex
	sent [][]any
}

func (t *trips) list() [][]any {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.sent)
}

// before has something happen before the first round trip with a statement, in contexts with it.
type before struct {
	statement string
	once      sync.Once
	happens   func()
}

type beforeKey struct{}

// tripKey is the key of a function that is called before each round trip in contexts with it.
type tripKey struct{}

func note(ctx context.Context, values []any) context.Context {
	if b, ok := ctx.Value(beforeKey{}).(*before); ok && slices.ContainsFunc(values, func(v any) bool {
		text, isText := v.(string)
		return isText && strings.Contains(text, "/* outmill "+b.statement+" */")
	}) {
		b.once.Do(b.happens)
	}
	if tell, ok := ctx.Value(tripKey{}).(func()); ok {
		tell()
	}
	if t, ok := ctx.Value(tapKey{}).(*trips); ok {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.sent = append(t.sent, values)
	}
	return ctx
}

func (tap) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return note(ctx, append([]any{data.SQL}, data.Args...))
}

func (tap) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (tap) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	var values []any
	for _, query := range data.Batch.QueuedQueries {
		values = append(append(values, query.SQL), query.Arguments...)
	}
	return note(ctx, values)
}

func (tap) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (tap) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (tap) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	return note(ctx, nil)
}

func (tap) TraceCopyFromEnd(context.Context, *pgx.Conn, pgx.TraceCopyFromEndData) {}

// verb begins a statement.
var verb = regexp.MustCompile(`^(SELECT|INSERT|UPDATE|DELETE|WITH|BEGIN|COMMIT|LOCK|SAVEPOINT|RELEASE)\b`)
