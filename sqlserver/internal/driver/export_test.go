package driver

import (
	"reflect"
	"slices"
	"strings"
)

// Texts returns all statements by their names, as SQL Server gets them in a caller's transaction, also with locks where they differ.
func (d *Driver) Texts() (names []string, texts map[string]string) {
	texts = map[string]string{}
	for name := range templates() {
		texts[name] = within + d.names.text(name, false)
		if strings.Contains(templates()[name], "{free}") && !strings.HasPrefix(name, countOf) {
			texts[name+", with locks"] = alone + d.names.text(name, true)
		}
	}
	for name := range texts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, texts
}

// Passes reports whether a transaction that failed with err is repeated.
func Passes(err error) bool { return judge.Passes(err) }

// Ended returns what becomes of the error of a statement in a transaction.
func Ended(err error) error { return ended(err) }

// Items are the columns of the lists that the program sends to a statement.
func Items(statement string) []string {
	switch statement {
	case "ack":
		return columnsSent(ackItem{})
	case "lease":
		return columnsSent(leaseItem{})
	case "extend":
		return columnsSent(extendItem{})
	case "change", moving + "change", "delete":
		return columnsSent(changeItem{})
	case "open_notes", "drop_notes", "put_notes":
		return columnsSent(noteItem{})
	case "put", "take", "delete_entries":
		return columnsSent(entryItem{})
	case "pages":
		return columnsSent(lineItem{})
	}
	return nil
}

// columnsSent are the names of an item in JSON, each with all types that its value can have.
func columnsSent(item any) (columns []string) {
	types := map[reflect.Kind][]string{
		reflect.Int: {"INT", "SMALLINT", "TINYINT"}, reflect.Int64: {"BIGINT"}, reflect.Bool: {"BIT"},
		reflect.String: {
			"VARCHAR(32)", "VARCHAR(MAX)", "NVARCHAR(40)", "NVARCHAR(200)", "NVARCHAR(255)", "NVARCHAR(260)", "NVARCHAR(600)", "NVARCHAR(MAX)",
		},
		reflect.Pointer: {"NVARCHAR(MAX)"},
	}
	for _, field := range reflect.VisibleFields(reflect.TypeOf(item)) {
		name := field.Tag.Get("json")
		if name == "key" {
			name = "[key]"
		}
		for _, kind := range types[field.Type.Kind()] {
			columns = append(columns, name+" "+kind)
		}
	}
	return columns
}

// Arguments are those that go-mssqldb gets.
func Arguments(a map[string]any) []any { return args(a).list() }

// IndexNames are the indexes of the schema that Examine wants.
func (d *Driver) IndexNames() ([]string, error) { return d.indexNames() }

// Permissions are the rights that Examine wants.
func (d *Driver) Permissions() (all []string) {
	for _, p := range d.permissions() {
		all = append(all, p.Permission+" "+p.Class+" "+p.Name)
	}
	return all
}
