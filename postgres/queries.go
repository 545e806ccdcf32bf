package postgres

import (
	"regexp"
	"sync"

	"github.com/jackc/pgx/v5"
)

// queries turns the templates of this package into SQL for one schema and
// table prefix: {p:records} becomes the qualified name of the table records,
// {i:line} the bare name of an index, as CREATE INDEX wants it.
type queries struct {
	schema, prefix string
	expanded       sync.Map
}

var placeholder = regexp.MustCompile(`\{([pi]):([a-z_]+)\}`)

func (q *queries) text(template string) string {
	if text, ok := q.expanded.Load(template); ok {
		return text.(string)
	}
	text := q.expand(template)
	q.expanded.Store(template, text)
	return text
}

func (q *queries) expand(template string) string {
	return placeholder.ReplaceAllStringFunc(template, func(found string) string {
		match := placeholder.FindStringSubmatch(found)
		name := q.prefix + match[2]
		if match[1] == "i" {
			return pgx.Identifier{name}.Sanitize()
		}
		return pgx.Identifier{q.schema, name}.Sanitize()
	})
}
