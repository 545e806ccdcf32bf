package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/connect"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/tenants"
)

// discoveryTimeout bounds a question of a command; a set has the same for its own.
const discoveryTimeout = 30 * time.Second

// discovery is one that can be asked, until it is closed.
type discovery struct {
	tenants.Discovery
	// shown is the URL that the discovery asks, without its password.
	shown string
	// ensure says that the URL wants the schemas of the stores made.
	ensure   bool
	defaults outmill.WorkerDefaults
	close    func() error
}

// open makes ready to ask. It may succeed although nothing answers. files is what becomes of the URLs of
// SQLite files.
func (d *discover) open(files func(url string) string, logger watermill.LoggerAdapter) (discovery, error) {
	choice, err := d.resolve()
	if err != nil {
		return discovery{}, err
	}
	found := discovery{shown: outmill.RedactURL(choice.URL)}
	if d.kind != discoverQuery {
		found.defaults = choice.Defaults
	}
	switch d.kind {
	case discoverSchemas:
		err = found.ofSchemas(choice.URL, d.pattern, logger)
	case discoverDatabases:
		err = found.ofDatabases(choice.URL, d.pattern, logger)
	default:
		err = found.ofQuery(choice, d.sql, files)
	}
	return found, err
}

func (found *discovery) ofSchemas(storeURL, pattern string, logger watermill.LoggerAdapter) error {
	rest, config, err := postgres.ConfigOf(storeURL)
	if err != nil {
		return err
	}
	if config.Schema != "" {
		return usagef("discover.schemas: the URL %s has the parameter schema: want none, because each tenant has its own", found.shown)
	}
	// The pool connects when it is asked, and lives longer than any call.
	pool, err := pgxpool.New(context.Background(), rest)
	if err != nil {
		return fmt.Errorf("the URL: %w", err)
	}
	found.Discovery = postgres.Schemas{Pool: pool, Pattern: pattern, Config: config, Logger: logger}
	found.ensure = config.EnsureSchema
	found.close = func() error { pool.Close(); return nil }
	return nil
}

func (found *discovery) ofDatabases(storeURL, pattern string, logger watermill.LoggerAdapter) error {
	rest, config, err := mongo.ConfigOf(storeURL)
	if err != nil {
		return err
	}
	client, err := driver.Connect(options.Client().ApplyURI(rest))
	if err != nil {
		return fmt.Errorf("the URL %s: %w", found.shown, err)
	}
	// The path of the URL is where the user logs in.
	config.Database = ""
	found.Discovery = mongo.Databases{Client: client, Pattern: pattern, Config: config, Logger: logger}
	found.ensure = config.EnsureSchema
	found.close = func() error { return client.Disconnect(context.Background()) }
	return nil
}

func (found *discovery) ofQuery(choice connect.Resolution, statement string, files func(url string) string) error {
	db, err := openCatalogue(choice)
	if err != nil {
		return err
	}
	// A connection would be idle for minutes, and the database may be another one by then.
	db.SetMaxIdleConns(0)
	found.Discovery = tenants.Func(func(ctx context.Context) ([]tenants.Tenant, error) {
		list, err := tenants.Query{DB: db, SQL: statement}.Tenants(ctx)
		for i := range list {
			// A set refuses a tenant without a URL.
			if list[i].URL != "" {
				list[i].URL = files(list[i].URL)
			}
		}
		return list, err
	})
	found.close = db.Close
	return nil
}

// openCatalogue opens the database that is asked for tenants. Parameters of a store are ignored, because a
// URL in the environment may be that of a store, too.
func openCatalogue(choice connect.Resolution) (*sql.DB, error) {
	switch choice.Provider {
	case "postgres":
		rest, _, err := postgres.ConfigOf(choice.URL)
		if err != nil {
			return nil, err
		}
		config, err := pgxpool.ParseConfig(rest)
		if err != nil {
			return nil, fmt.Errorf("the URL: %w", err)
		}
		return stdlib.OpenDB(*config.ConnConfig), nil
	case "sqlserver":
		db, err := sql.Open("sqlserver", choice.URL)
		if err != nil {
			// The driver's error may show the URL.
			return nil, usagef("discover.query: the URL %s makes no sense to the driver", outmill.RedactURL(choice.URL))
		}
		return db, nil
	}
	return openCatalogueFile(choice.URL)
}

func openCatalogueFile(storeURL string) (*sql.DB, error) {
	path, parameters, _ := strings.Cut(existing(storeURL), "?")
	_, path, _ = strings.Cut(path, ":")
	path = strings.TrimPrefix(path, "//")
	file, err := url.PathUnescape(path)
	if err != nil {
		return nil, usagef("discover.query: the URL %s: %v", storeURL, err)
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the file %s does not exist: check the path", file)
	}
	return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&"+parameters)
}

// list asks for the tenants.
func (found *discovery) list(ctx context.Context) ([]tenants.Tenant, error) {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	return found.Tenants(ctx)
}
