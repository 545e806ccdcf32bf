package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill/internal/clock"
	"github.com/outmill/outmill/sqlite/internal/driver"
	"github.com/outmill/outmill/storekit"
)

const (
	idleConnections = 8
	// ownerOnly is the mode of a new database file.
	ownerOnly = 0o600
)

// Open opens the database file and returns a store on it. Close closes both. Open creates the file if it does not exist, with the
// mode 0600, which SQLite gives to its files -wal and -shm too; with the parameter mode=rw of SQLite (sqlite:orders.db?mode=rw) it
// returns a *FileNotFoundError instead, and creates nothing. It does not create the schema, unless Config.EnsureSchema is set: see
// Ensure. A nil logger logs nothing.
//
// The database is a path (orders.db), a URL (sqlite:orders.db, sqlite://orders.db, sqlite:///var/lib/orders.db), a DSN of SQLite
// (file:orders.db?mode=rwc), or ":memory:". Parameters of URLs and DSNs go to the driver (_pragma=…). They are applied after the
// settings below and override them. In a plain path a ? is part of the name.
//
// Every connection gets journal_mode(WAL), synchronous(FULL) (NORMAL may lose the last commits
// when the power fails), foreign_keys(1), busy_timeout (Config.BusyTimeout) and
// _txlock=immediate, so that DB().BeginTx begins a transaction in which Append works.
//
// A database in memory has a single connection: while a transaction is open, all other calls of the store wait for its end. For a
// file, up to 8 idle connections are kept for a minute. The number of open connections is not limited (DB().SetMaxOpenConns).
func Open(ctx context.Context, database string, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	source, err := parseSource(database)
	if err != nil {
		return nil, err
	}
	if config.Name == "" {
		config.Name = "sqlite:" + filepath.Base(source.path)
	}
	config.setDefaults()
	source.create()
	db, err := sql.Open("sqlite", source.dsn(config))
	if err != nil {
		return nil, fmt.Errorf("outmill/sqlite: open %s: %w", source.path, err)
	}
	if source.inMemory() {
		db.SetMaxOpenConns(1)
	} else {
		// Keep idle connections, because a new one runs the settings above and prepares its statements again.
		db.SetMaxIdleConns(idleConnections)
		db.SetConnMaxIdleTime(time.Minute)
	}
	store := newStore(db, config, logger, driver.Config{Owned: true, Now: clock.From(ctx)})
	if err = store.driver.Ping(ctx); err != nil {
		err = cmp.Or(source.missing(), fmt.Errorf("outmill/sqlite: open %s: check that its folder exists, that it may be written, and that "+
			"it is a SQLite database: %w", source.path, err))
	} else if config.EnsureSchema {
		if err = store.Ensure(ctx); err != nil {
			err = fmt.Errorf("outmill/sqlite: open %s: %w", source.path, err)
		}
	}
	if err != nil {
		_ = store.Close()
		return nil, err
	}
	return store, nil
}

// FileNotFoundError says that a database file does not exist, and that the parameter mode=rw or
// mode=ro of its URL forbids to create it. errors.Is(err, fs.ErrNotExist) is true.
type FileNotFoundError struct {
	// Path is absolute, unless the working directory is unknown.
	Path string
}

func (e *FileNotFoundError) Error() string {
	return fmt.Sprintf("outmill/sqlite: the file %s does not exist: check the path, or leave the parameter mode out of the URL to create it",
		e.Path)
}

// Is makes errors.Is(err, fs.ErrNotExist) true.
func (e *FileNotFoundError) Is(target error) bool { return target == fs.ErrNotExist }

// source is a database in the form that Open takes.
type source struct {
	// path is a file, or :memory:, unescaped.
	path string
	// query has the parameters in the form of a URL's query.
	query string
}

func parseSource(database string) (source, error) {
	rest, isURL := strings.CutPrefix(database, "sqlite:")
	if isURL {
		rest = strings.TrimPrefix(rest, "//")
	} else if rest, isURL = strings.CutPrefix(database, "file:"); strings.HasPrefix(rest, "//") {
		rest = strings.TrimPrefix(rest[2:], "localhost")
	}
	switch {
	case database == "":
		return source{}, storekit.InvalidConfig("sqlite.Open: the path is empty: want a file, or \":memory:\"")
	case !isURL:
		return source{path: database}, nil
	}
	rest, _, _ = strings.Cut(rest, "#")
	escaped, query, _ := strings.Cut(rest, "?")
	file, err := url.PathUnescape(escaped)
	if err == nil {
		_, err = url.ParseQuery(query)
	}
	switch {
	case err != nil:
		return source{}, storekit.InvalidConfig("sqlite.Open: %q: %w", database, err)
	case file == "":
		return source{}, storekit.InvalidConfig("sqlite.Open: %q names no file: want sqlite:orders.db, sqlite:///var/lib/orders.db or "+
			"sqlite::memory:", database)
	}
	return source{path: file, query: query}, nil
}

func (s source) inMemory() bool {
	return s.path == ":memory:" || strings.Contains("&"+s.query+"&", "&mode=memory&")
}

// gone reports whether the database is a file that does not exist, and whether its parameters forbid to create it.
func (s source) gone() (gone, must bool) {
	_, err := os.Stat(s.path)
	// parseSource has checked the query.
	query, _ := url.ParseQuery(s.query)
	mode := query.Get("mode")
	return !s.inMemory() && errors.Is(err, fs.ErrNotExist), mode == "rw" || mode == "ro"
}

// missing returns an error if the file must exist and does not.
func (s source) missing() error {
	if gone, must := s.gone(); !gone || !must {
		return nil
	}
	path, err := filepath.Abs(s.path)
	if err != nil {
		path = s.path
	}
	return &FileNotFoundError{Path: path}
}

// create makes a file that does not exist, readable by its owner only, because messages are in it. SQLite itself would leave that
// to the umask, and gives the files -wal and -shm the mode of the database. SQLite reports what this cannot do.
func (s source) create() {
	if gone, must := s.gone(); !gone || must || strings.Contains("&"+s.query, "&immutable") {
		return
	}
	if file, err := os.OpenFile(filepath.Clean(s.path), os.O_CREATE|os.O_RDWR, ownerOnly); err == nil {
		_ = file.Close()
	}
}

// dsn has the path in the form of a URL: with slashes, and one before a drive letter.
func (s source) dsn(config Config) string {
	file := filepath.ToSlash(filepath.Clean(s.path))
	if filepath.VolumeName(s.path) != "" {
		file = "/" + file
	}
	dsn := fmt.Sprintf("file:%s?_pragma=busy_timeout(%d)&_pragma=foreign_keys(1)&_pragma=synchronous(FULL)&_txlock=immediate",
		(&url.URL{Path: file}).EscapedPath(), config.BusyTimeout.Milliseconds())
	if !s.inMemory() {
		dsn += "&_pragma=journal_mode(WAL)"
	}
	if s.query != "" {
		dsn += "&" + s.query
	}
	return dsn
}
