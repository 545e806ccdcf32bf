package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/connect"
)

// The kinds of discover.
const (
	discoverQuery     = "query"
	discoverSchemas   = "schemas"
	discoverDatabases = "databases"
)

var discoverKinds = []string{discoverQuery, discoverSchemas, discoverDatabases}

// minEvery keeps a mistyped unit from asking all the time.
const minEvery = 100 * time.Millisecond

// discover is the section discover of a configuration file: where to ask for the tenants of a set.
type discover struct {
	kind string
	// url is what to ask; source names one in the environment, in place of it.
	url, source string
	// sql is the statement of a query, pattern that of the names of schemas or databases.
	sql, pattern string
	// every is the time between two questions; 0 is the default of package tenants.
	every time.Duration
}

// readDiscover reads the section. Its errors show no value that may be a URL.
func readDiscover(value any) (*discover, error) {
	section, err := fieldsOf("discover", value, append([]string{"every"}, discoverKinds...)...)
	if err != nil {
		return nil, err
	}
	var d discover
	var kinds []string
	for _, kind := range discoverKinds {
		if _, found := section[kind]; found {
			d.kind, kinds = kind, append(kinds, kind)
		}
	}
	switch len(kinds) {
	case 0:
		return nil, usagef("discover says nothing to ask: want %s", either(discoverKinds))
	case 1:
	default:
		return nil, usagef("discover has %s: want one of them", strings.Join(kinds, " and "))
	}
	if d.every, err = durationOf("discover.every", section["every"], minEvery); err != nil {
		return nil, err
	}
	return &d, d.readKind(section[d.kind])
}

func (d *discover) readKind(value any) error {
	own, what, into := "pattern", "a name with *, such as tenant_*", &d.pattern
	if d.kind == discoverQuery {
		own, what, into = "sql", "a statement that returns the key and the URL of each tenant", &d.sql
	}
	fields, err := fieldsOf(d.name(), value, "url", "source", own)
	if err != nil {
		return err
	}
	for field, into := range map[string]*string{"url": &d.url, "source": &d.source, own: into} {
		if *into, err = textOf(d.name()+"."+field, fields[field]); err != nil {
			return err
		}
	}
	switch {
	case *into == "":
		return usagef("%s.%s is missing: want %s", d.name(), own, what)
	case d.url == "" && d.source == "":
		return usagef("%s.url is missing: want %s, or source, the name of a URL in the environment", d.name(), d.schemes())
	case d.url != "" && d.source != "":
		return usagef("%s has url and source: want one of them", d.name())
	}
	return nil
}

// name is that of the section of this kind, for messages.
func (d *discover) name() string { return "discover." + d.kind }

// schemes are the beginnings of the URLs that can be asked, for messages.
func (d *discover) schemes() string {
	switch d.kind {
	case discoverSchemas:
		return "postgres://…"
	case discoverDatabases:
		return "mongodb://…"
	}
	return "postgres://…, sqlite:… or sqlserver://…"
}

// providers are those of the URLs that can be asked.
func (d *discover) providers() []string {
	switch d.kind {
	case discoverSchemas:
		return []string{"postgres"}
	case discoverDatabases:
		return []string{"mongo"}
	}
	return []string{"postgres", "sqlite", "sqlserver"}
}

// resolve finds the URL to ask.
func (d *discover) resolve() (connect.Resolution, error) {
	conn := connect.Connection{URL: d.url, Source: d.source, Lookup: connect.LookupEnv(environment)}
	field := "source"
	if d.url != "" {
		field = "url"
	} else if d.kind != discoverQuery {
		conn.Provider = d.providers()[0]
	}
	choice, err := connect.Resolve(conn)
	var missing *connect.ConnectionNotFoundError
	switch {
	case errors.As(err, &missing):
		return choice, usagef("%s.source is %.60q: want the variable %s_SOURCES_%s_<PROVIDER>_CONNECTION_STRING with %s", d.name(), d.source,
			environment, strings.ToUpper(d.source), d.schemes())
	case err != nil:
		return choice, usagef("%s.%s: %s", d.name(), field, strings.TrimPrefix(err.Error(), "Connection.URL: "))
	case !slices.Contains(d.providers(), choice.Provider):
		return choice, usagef("%s.%s is %s: want %s", d.name(), field, outmill.RedactURL(choice.URL), d.schemes())
	}
	return choice, nil
}

// limits are those of a set of tenants, as tenants.Config has them.
type limits struct {
	maxConnections, parallel int
	maxIdle                  time.Duration
}

// limitNames are the settings of limits in a file.
var limitNames = []string{"max-connections", "parallel", "max-idle"}

func readLimits(values map[string]any) (l limits, err error) {
	if l.maxConnections, err = numberOf(limitNames[0], values[limitNames[0]]); err != nil {
		return l, err
	}
	if l.parallel, err = numberOf(limitNames[1], values[limitNames[1]]); err != nil {
		return l, err
	}
	l.maxIdle, err = durationOf(limitNames[2], values[limitNames[2]], time.Millisecond)
	return l, err
}

// fieldsOf returns the fields of a section, which has no others than these.
func fieldsOf(name string, value any, known ...string) (map[string]any, error) {
	fields, is := value.(map[string]any)
	if !is {
		return nil, usagef("%s is no section: want lines under it, with %s", name, either(known))
	}
	for field := range fields {
		if !slices.Contains(known, field) {
			return nil, usagef("%s has the field %.40q, which does not exist: want %s", name, field, either(known))
		}
	}
	return fields, nil
}

func textOf(name string, value any) (string, error) {
	text, is := value.(string)
	if value != nil && (!is || strings.TrimSpace(text) == "") {
		return "", usagef("%s has no text: want one", name)
	}
	return strings.TrimSpace(text), nil
}

// numberOf returns 0 for a setting that is not there.
func numberOf(name string, value any) (int, error) {
	number, is := value.(int)
	if value != nil && (!is || number < 1) {
		return 0, usagef("%s is %s: want a whole number of 1 or more", name, shownValue(value))
	}
	return number, nil
}

// durationOf returns 0 for a setting that is not there.
func durationOf(name string, value any, least time.Duration) (time.Duration, error) {
	if value == nil {
		return 0, nil
	}
	text, _ := value.(string)
	duration, err := time.ParseDuration(text)
	if err != nil || duration < least {
		return 0, usagef("%s is %s: want a time such as 30s, of %s or more", name, shownValue(value), least)
	}
	return duration, nil
}

// shownValue is a value that should have been a number or a time.
func shownValue(value any) string {
	switch value.(type) {
	case string:
		return fmt.Sprintf("%.40q", value)
	case int, float64, bool:
		return fmt.Sprint(value)
	}
	return "a list or a section"
}

// either joins names to "a, b or c".
func either(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
