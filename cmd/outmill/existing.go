package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/connect"
	"github.com/outmill/outmill/sqlite"
)

// existing makes the URL of a SQLite file one that does not create the file: a mistyped path must not
// leave an empty file behind. A URL that says what to do (mode, ensure_schema) stays as it is.
func existing(storeURL string) string {
	path, query, is := fileOf(storeURL)
	if !is || query.Has("mode") || query.Has("ensure_schema") {
		return storeURL
	}
	rest, fragment, found := strings.Cut(storeURL, "#")
	if found {
		fragment = "#" + fragment
	}
	_, parameters, _ := strings.Cut(rest, "?")
	return path + "?" + strings.TrimPrefix(parameters+"&mode=rw", "&") + fragment
}

// created leaves the URL of a SQLite file as it is: opening it creates the file.
func created(storeURL string) string { return storeURL }

// unopened makes the URL of a SQLite file that of a database in memory with the same settings.
func unopened(storeURL string) string {
	_, query, is := fileOf(storeURL)
	if !is {
		return storeURL
	}
	query.Del("mode")
	query.Del("vfs")
	query.Del("ensure_schema")
	return "sqlite::memory:?" + query.Encode()
}

// fileOf takes the URL of a SQLite file apart.
func fileOf(storeURL string) (path string, query url.Values, is bool) {
	provider, err := outmill.ProviderFor(storeURL)
	if err != nil || provider.Name != "sqlite" || strings.Contains(storeURL, ":memory:") {
		return "", nil, false
	}
	rest, _, _ := strings.Cut(storeURL, "#")
	path, parameters, _ := strings.Cut(rest, "?")
	query, err = url.ParseQuery(parameters)
	return path, query, err == nil
}

// withFiles changes the URLs of a connection, in whatever place they are.
func withFiles(conn connect.Connection, change func(storeURL string) string) connect.Connection {
	lookup := conn.Lookup
	conn.URL = change(strings.TrimSpace(conn.URL))
	conn.Lookup = func(key string) (string, bool) {
		value, found := lookup(key)
		return change(strings.TrimSpace(value)), found
	}
	return conn
}

// remedied is an error of a store with the command that mends it.
type remedied struct {
	text string
	err  error
}

func (e *remedied) Error() string { return e.text }

func (e *remedied) Unwrap() error { return e.err }

// remedy names the command that mends a store without a file or a schema. shown is the store, and
// arguments are those that name it on the command line.
func remedy(err error, shown, arguments string) error {
	var file *sqlite.FileNotFoundError
	switch {
	case errors.As(err, &file):
		return &remedied{err: err, text: fmt.Sprintf("outmill: the file %s does not exist: check the path, or create the store with: "+
			"outmill schema ensure %s", file.Path, arguments)}
	case errors.Is(err, outmill.ErrSchemaMissing):
		return &remedied{err: err, text: fmt.Sprintf("outmill: the store %s has no schema: check the URL, or create the schema with: "+
			"outmill schema ensure %s", shown, arguments)}
	case errors.Is(err, outmill.ErrSchemaOutdated):
		return &remedied{err: err, text: fmt.Sprintf("outmill: the schema of the store %s is older than this outmill wants: bring it up to date "+
			"with: outmill schema upgrade %s", shown, arguments)}
	}
	return err
}

// quoted is an argument as a shell takes it.
func quoted(argument string) string {
	if argument != "" && !strings.ContainsAny(argument, " \t\n'\"\\$&|;<>()*?[]#~=%`!{}") {
		return argument
	}
	return "'" + strings.ReplaceAll(argument, "'", `'\''`) + "'"
}
