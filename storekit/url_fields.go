package storekit

import (
	"log/slog"
	"reflect"
	"time"
)

// Fields takes the settings with these names into the fields of a Config, to which config points: dedup_window into
// DedupWindow. A field has one of the types that the other methods take, or another type that is a text.
func (p *URLParameters) Fields(config any, names ...string) {
	fields := reflect.ValueOf(config).Elem()
	for _, name := range names {
		field := fields.FieldByNameFunc(func(of string) bool { return plain(of) == plain(name) })
		switch into := field.Addr().Interface().(type) {
		case *time.Duration:
			p.Duration(name, into)
		case *bool:
			p.Bool(name, into)
		case *[]string:
			p.List(name, into)
		case *slog.Leveler:
			p.Level(name, into)
		default:
			p.take(name, func(value string) error { field.SetString(value); return nil })
		}
	}
}
