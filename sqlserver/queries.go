package sqlserver

import (
	"regexp"
	"strings"
	"sync"
)

// Names as parameters of statements, with the types of the columns: see call.arguments.
const (
	groupName = `CAST(@group AS NVARCHAR(255))`
	topicName = `CAST(@topic AS NVARCHAR(255))`
)

// queries turns SQL with the default names, as in the files and in this package, into SQL for one
// schema and table: [dbo].[OutboxJoin] becomes [shop].[OrdersJoin], and [IX_Outbox_Line] becomes
// [IX_Orders_Line].
type queries struct {
	schema, table string
	expanded      sync.Map
}

var defaultName = regexp.MustCompile(`\[dbo\]\.\[Outbox|\[(PK|IX)_Outbox`)

func (q *queries) text(template string) string {
	if text, ok := q.expanded.Load(template); ok {
		return text.(string)
	}
	text := q.expand(template)
	q.expanded.Store(template, text)
	return text
}

func (q *queries) expand(template string) string {
	return defaultName.ReplaceAllStringFunc(template, func(found string) string {
		if kind, is := strings.CutSuffix(found, "_Outbox"); is {
			return kind + "_" + q.table
		}
		return "[" + q.schema + "].[" + q.table
	})
}

// typeName is the name of a table type in the form that the driver expects.
func (q *queries) typeName(name string) string { return q.schema + "." + q.table + name }
