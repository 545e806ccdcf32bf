// Package schema is what ent generates its client from.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
)

// Sale is a row of the table sales.
type Sale struct{ ent.Schema }

// Fields of the Sale.
func (Sale) Fields() []ent.Field {
	return []ent.Field{field.String("item").Unique()}
}
