package main

import (
	"context"
	"database/sql"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
)

// catalogue is a SQLite file with a table of tenants.
type catalogue struct {
	*sql.DB
	url string
}

func newCatalogue(t *testing.T) catalogue {
	t.Helper()
	file := filepath.Join(t.TempDir(), "catalogue.db")
	c := catalogue{openDB(t, file), "sqlite:" + file}
	c.run(t, "CREATE TABLE tenants (key TEXT PRIMARY KEY, url TEXT)")
	return c
}

func (c catalogue) run(t *testing.T, statement string, args ...any) {
	t.Helper()
	_, err := c.ExecContext(t.Context(), statement, args...)
	require.NoError(t, err)
}

func (c catalogue) add(t *testing.T, key, storeURL string) {
	t.Helper()
	c.run(t, "INSERT INTO tenants VALUES (?, ?)", key, storeURL)
}

// config writes a configuration file that asks the catalogue.
func (c catalogue) config(t *testing.T, more ...string) string {
	t.Helper()
	return discoverFile(t, "query: {url: '"+c.url+"', sql: 'SELECT key, url FROM tenants'}", more...)
}

func discoverFile(t *testing.T, kind string, more ...string) string {
	t.Helper()
	return writeFile(t, "discover:\n  every: 100ms\n  "+kind+"\n"+strings.Join(more, "\n"))
}

func TestDiscover_Forward(t *testing.T) {
	t.Parallel()
	order := func(of string) *outmill.Record { return &outmill.Record{Topic: "orders", Payload: []byte("of " + of)} }

	t.Run("a tenant whose row comes while the daemon runs is forwarded", func(t *testing.T) {
		t.Parallel()
		c, broker := newCatalogue(t), kafkatest.Fake(t)
		acme, globex := newWorld(t), newWorld(t)
		acme.append(t, order("acme"))
		globex.append(t, order("globex"))
		c.add(t, "acme", acme.url)
		config := c.config(t, "parallel: 4", "max-idle: 1s", "max-connections: 10")
		d := startDaemon(t, nil, "--config", config, "--to", "kafka://"+broker.Addrs[0])
		require.Equal(t, []string{"of acme"}, read(t, broker.Addrs, "orders", 1))
		c.add(t, "globex", globex.url)
		require.ElementsMatch(t, []string{"of acme", "of globex"}, read(t, broker.Addrs, "orders", 2))
		require.Equal(t, exitOK, d.stop(t), d.all.String())
	})

	t.Run("a daemon that begins without tenants forwards the first one, and ensure makes its schema", func(t *testing.T) {
		t.Parallel()
		c, broker := newCatalogue(t), kafkatest.Fake(t)
		d := startDaemon(t, nil, "--config", c.config(t), "--ensure", "--to", "kafka://"+broker.Addrs[0])
		d.await(t, `msg=Forwarding .*store="0 tenants"`)
		acme := "sqlite:" + newFile(t)
		c.add(t, "acme", acme)
		d.await(t, `msg="A tenant is ready".*store=acme`)
		ok(t, "publish", acme, "--topic", "orders", "--payload", "of acme")
		require.Equal(t, []string{"of acme"}, read(t, broker.Addrs, "orders", 1))
		require.Equal(t, exitOK, d.stop(t), d.all.String())
	})

	t.Run("SIGHUP asks at once", func(t *testing.T) {
		t.Parallel()
		c, broker := newCatalogue(t), kafkatest.Fake(t)
		config := writeFile(t, "discover:\n  every: 24h\n  query: {url: '"+c.url+"', sql: 'SELECT key, url FROM tenants'}\n")
		d := startDaemon(t, nil, "--config", config, "--to", "kafka://"+broker.Addrs[0])
		d.await(t, `msg=Forwarding `)
		w := newWorld(t)
		w.append(t, order("acme"))
		c.add(t, "acme", w.url)
		require.NoError(t, d.cmd.Process.Signal(syscall.SIGHUP))
		d.await(t, `msg="SIGHUP: the tenants were asked for".* tenants=1`)
		require.Equal(t, []string{"of acme"}, read(t, broker.Addrs, "orders", 1))
		require.Equal(t, exitOK, d.stop(t), d.all.String())
	})

	t.Run("a discovery that fails later is logged, and the tenants that are known go on", func(t *testing.T) {
		t.Parallel()
		c, w, broker := newCatalogue(t), newWorld(t), kafkatest.Fake(t)
		c.add(t, "acme", w.url)
		d := startDaemon(t, nil, "--config", c.config(t), "--to", "kafka://"+broker.Addrs[0])
		d.await(t, `msg=Forwarding .*store="1 tenant"`)
		c.run(t, "DROP TABLE tenants")
		d.await(t, `The discovery of tenants failed, its last answer is kept.*no such table`)
		w.append(t, order("acme"))
		require.Equal(t, []string{"of acme"}, read(t, broker.Addrs, "orders", 1))
		require.Equal(t, exitOK, d.stop(t), d.all.String())
	})

	t.Run("a schema of PostgreSQL that comes while the daemon runs is forwarded", func(t *testing.T) {
		t.Parallel()
		base, broker := postgrestest.Database(t), kafkatest.Fake(t)
		schema := func(name string) world {
			return openWorld(t, withParameters(t, base, map[string]string{"schema": name}))
		}
		schema("tenant_acme").append(t, order("acme"))
		schema("other").append(t, order("nobody"))
		config := discoverFile(t, "schemas: {url: '"+base+"', pattern: 'tenant_*'}")
		d := startDaemon(t, nil, "--config", config, "--to", "kafka://"+broker.Addrs[0])
		require.Equal(t, []string{"of acme"}, read(t, broker.Addrs, "orders", 1))
		schema("tenant_globex").append(t, order("globex"))
		require.ElementsMatch(t, []string{"of acme", "of globex"}, read(t, broker.Addrs, "orders", 2))
		require.Equal(t, exitOK, d.stop(t), d.all.String())
	})

	t.Run("a database of MongoDB that comes while the daemon runs is forwarded", func(t *testing.T) {
		t.Parallel()
		db, broker := mongotest.Database(t), kafkatest.Fake(t)
		database := func(name string) world {
			of := db.Client().Database(db.Name() + name)
			t.Cleanup(func() { require.NoError(t, of.Drop(context.WithoutCancel(t.Context()))) })
			return openWorld(t, urlOf(t, of))
		}
		database("_acme").append(t, order("acme"))
		config := discoverFile(t, "databases: {url: '"+mongotest.Server(t)+"', pattern: '"+db.Name()+"_*'}")
		d := startDaemon(t, nil, "--config", config, "--to", "kafka://"+broker.Addrs[0])
		require.Equal(t, []string{"of acme"}, read(t, broker.Addrs, "orders", 1))
		database("_globex").append(t, order("globex"))
		require.ElementsMatch(t, []string{"of acme", "of globex"}, read(t, broker.Addrs, "orders", 2))
		require.Equal(t, exitOK, d.stop(t), d.all.String())
	})

	t.Run("no password of a discovery or of its tenants reaches the log", func(t *testing.T) {
		t.Parallel()
		base := withPassword(t, postgrestest.Database(t))
		conn, err := pgx.Connect(t.Context(), base)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
		_, err = conn.Exec(t.Context(), "CREATE TABLE tenants AS SELECT 'acme' AS key, $1::text AS url", "postgres://me:S3CRET@127.0.0.1:1/shop")
		require.NoError(t, err)
		config := discoverFile(t, "query: {source: catalogue, sql: 'SELECT key, url FROM tenants'}")
		env := []string{"OUTMILL_SOURCES_CATALOGUE_POSTGRES_CONNECTION_STRING=" + base}
		d := startDaemon(t, env, "--config", config, "--to", "memory:", "--log-level", "debug")
		d.await(t, `The store of a tenant could not be opened.*store=acme`)
		d.await(t, `msg=Forwarding `)
		_, err = conn.Exec(t.Context(), "DROP TABLE tenants")
		require.NoError(t, err)
		d.await(t, `The discovery of tenants failed`)
		require.Equal(t, exitOK, d.stop(t), d.all.String())
		require.NotContains(t, d.all.String(), "S3CRET")
	})
}

// withPassword puts a password into the URL that the server of the tests does not ask for.
func withPassword(t *testing.T, database string) string {
	t.Helper()
	u, err := url.Parse(database)
	require.NoError(t, err)
	if _, has := u.User.Password(); !has {
		u.User = url.UserPassword(u.User.Username(), "S3CRET")
	}
	return u.String()
}

func TestDiscover_Commands(t *testing.T) {
	t.Parallel()

	t.Run("commands work on the tenants of a query, and on the one that is picked", func(t *testing.T) {
		t.Parallel()
		c, acme, globex := newCatalogue(t), newWorld(t), newWorld(t)
		c.add(t, "acme", acme.url)
		c.add(t, "globex", globex.url)
		config := c.config(t)
		require.Equal(t, "2 tenants have no records.\n", ok(t, "status", "--config", config))
		ok(t, "publish", "--config", config, "--tenant", "globex", "--topic", "orders", "--payload", "x")
		require.Equal(t, 1, globex.statusOf(t, "", "orders").Pending)
		require.Regexp(t, `(?m)^globex +\(no group\) +orders +1 `, ok(t, "status", "--config", config))
		require.Equal(t, acme.url+" has no records.\n", ok(t, "status", "--config", config, "--tenant", "acme"))
		records := okJSON[listReport](t, "list", "--config", config, "--tenant", "globex").Records
		require.Len(t, records, 1)
		require.Equal(t, "globex", records[0].TenantID)
		require.Contains(t, ok(t, "schema", "print", "--config", config, "--tenant", "acme"), "CREATE TABLE")
		require.Contains(t, ok(t, "delete", "--config", config, "--tenant", "acme", "--topic", "orders"), "0 records deleted")
		require.Equal(t, 1, globex.statusOf(t, "", "orders").Pending)
		diagnose(t, exitOK, "--config", config, "--tenant", "acme")
	})

	t.Run("a remedy names the tenant of the discovery, and works", func(t *testing.T) {
		t.Parallel()
		c, file := newCatalogue(t), newFile(t)
		c.add(t, "acme", newWorld(t).url)
		c.add(t, "globex", "sqlite:"+file)
		config := c.config(t)
		for _, args := range [][]string{{"status", "--config", config}, {"status", "--config", config, "--tenant", "globex"}} {
			got := tool(t, args...)
			require.Equal(t, exitFailed, got.code)
			require.Contains(t, got.stderr, "the file "+file+" does not exist: check the path, or create the store with: "+
				"outmill schema ensure --config "+config+" --tenant globex\n")
			require.NoFileExists(t, file)
		}
		ok(t, "schema", "ensure", "--config", config, "--tenant", "globex")
		require.Equal(t, "2 tenants have no records.\n", ok(t, "status", "--config", config))
	})

	t.Run("schemas of PostgreSQL are tenants, with the settings of the URL", func(t *testing.T) {
		t.Parallel()
		database := postgrestest.Database(t)
		base := withParameters(t, database, map[string]string{"table_prefix": "web_"})
		acme := openWorld(t, withParameters(t, base, map[string]string{"schema": "tenant_acme"}))
		openWorld(t, withParameters(t, base, map[string]string{"schema": "tenant_globex"}))
		config := discoverFile(t, "schemas: {url: '"+base+"', pattern: 'tenant_*'}")
		require.Equal(t, "The schemas in 2 tenants are up to date.\n", ok(t, "schema", "ensure", "--config", config))
		ok(t, "publish", "--config", config, "--tenant", "tenant_acme", "--topic", "orders", "--payload", "x")
		require.Equal(t, 1, acme.statusOf(t, "", "orders").Pending)
		require.Contains(t, ok(t, "status", "--config", config, "--tenant", "tenant_acme"), "orders")
		require.Equal(t, "tenant_globex of "+outmill.RedactURL(base)+" has no records.\n",
			ok(t, "status", "--config", config, "--tenant", "tenant_globex"))
		conn, err := pgx.Connect(t.Context(), database)
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
		_, err = conn.Exec(t.Context(), "CREATE SCHEMA tenant_new")
		require.NoError(t, err)
		got := tool(t, "status", "--config", config, "--tenant", "tenant_new")
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, "outmill schema ensure --config "+config+" --tenant tenant_new\n")
		ok(t, "schema", "ensure", "--config", config, "--tenant", "tenant_new")
	})

	t.Run("databases of MongoDB are tenants", func(t *testing.T) {
		t.Parallel()
		db := mongotest.Database(t)
		w := openWorld(t, urlOf(t, db))
		config := discoverFile(t, "databases: {url: '"+mongotest.Server(t)+"', pattern: '"+db.Name()+"'}")
		require.Equal(t, "1 tenant has no records.\n", ok(t, "status", "--config", config))
		ok(t, "publish", "--config", config, "--tenant", db.Name(), "--topic", "orders", "--payload", "x")
		require.Equal(t, 1, w.statusOf(t, "", "orders").Pending)
		require.Contains(t, ok(t, "schema", "print", "--config", config, "--tenant", db.Name()), "db.runCommand")
	})

	t.Run("a query of PostgreSQL may have the URL of a store", func(t *testing.T) {
		t.Parallel()
		base, w := withParameters(t, postgrestest.Database(t), map[string]string{"pool_max_conns": "3", "retain": "24h"}), newWorld(t)
		config := discoverFile(t, "query: {url: '"+base+"', sql: \"SELECT 'acme', '"+w.url+"'\"}")
		require.Equal(t, "1 tenant has no records.\n", ok(t, "status", "--config", config))
	})

	t.Run("a discovery that fails ends the command with the field that asked", func(t *testing.T) {
		t.Parallel()
		c := newCatalogue(t)
		c.add(t, "acme", "sqlite:a.db")
		missing := filepath.Join(t.TempDir(), "missing.db")
		for want, kind := range map[string]string{
			"discover.query: outmill/tenants: query of tenants: ": "query: {url: '" + c.url + "', sql: 'SELECT key, url FROM customers'}",
			"want two columns of text":                            "query: {url: '" + c.url + "', sql: 'SELECT key FROM tenants'}",
			"discover.query: the file " + missing:                 "query: {url: 'sqlite:" + missing + "', sql: 'SELECT 1, 2'}",
			"discover.schemas: ":                                  "schemas: {url: 'postgres://me:S3CRET@127.0.0.1:1/shop', pattern: '*'}",
			"discover.databases: ": "databases: {url: 'mongodb://me:S3CRET@127.0.0.1:1/?serverSelectionTimeoutMS=100&replicaSet=rs0', " +
				"pattern: '*'}",
			"two tenants have the key": "query: {url: '" + c.url + "', sql: \"SELECT 'acme', 'sqlite:' || n FROM (SELECT 1 AS n UNION SELECT 2)\"}",
		} {
			config := discoverFile(t, kind)
			all := [][]string{{"status", "--config", config}, {"forward", "--config", config, "--to", "memory:"}}
			if !strings.Contains(want, "two tenants") {
				all = append(all, []string{"status", "--config", config, "--tenant", "acme"})
			}
			for _, args := range all {
				got := tool(t, args...)
				require.Equal(t, exitFailed, got.code, "%v: %s", args, got.stderr)
				require.Contains(t, got.stderr, "outmill: --config "+config+": discover.")
				require.Contains(t, got.stderr, want)
				require.NotContains(t, got.stderr, "S3CRET")
			}
			require.NoFileExists(t, missing)
		}
		twice := discoverFile(t, "query: {url: '"+c.url+"', sql: \"SELECT 'acme', 'sqlite:' || n FROM (SELECT 1 AS n UNION SELECT 2)\"}")
		got := tool(t, "status", "--config", twice, "--tenant", "acme")
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, `2 tenants have the key "acme"`)
		without := discoverFile(t, "query: {url: '"+c.url+"', sql: \"SELECT 'acme', ''\"}")
		got = tool(t, "status", "--config", without, "--tenant", "acme")
		require.Equal(t, exitFailed, got.code, "the command must not work on the source named default")
		require.Contains(t, got.stderr, `the tenant "acme" has no URL`)
	})

	t.Run("wrong usage is refused by name, and shows no password", func(t *testing.T) {
		t.Parallel()
		c := newCatalogue(t)
		c.add(t, "acme", newWorld(t).url)
		config := c.config(t)
		for want, args := range map[string][]string{
			`--tenant is "initech": ` + config + " has acme": {"status", "--tenant", "initech"},
			"--tenant is missing: want the tenant whose store gets the messages: " + config + " has acme\n": {"publish", "--topic", "a",
				"--payload", "x"},
			"--tenant is missing: want the tenant whose schema is printed": {"schema", "print"},
		} {
			got := tool(t, append(args, "--config", config)...)
			require.Equal(t, exitUsage, got.code, "%v: %s", args, got.stderr)
			require.Contains(t, got.stderr, want)
		}
		const from = "url: 'postgres://me:S3CRET@h/shop'"
		for _, tc := range []struct{ text, want string }{
			{
				"url: sqlite:a.db\ndiscover: {query: {" + from + ", sql: x}}",
				"url and discover are set: want one of url, source, tenants or discover",
			},
			{"source: shop\ntenants: [{key: a, url: b}]", "source and tenants are set"},
			{"url: sqlite:a.db\nparallel: 4", "parallel is a limit of a set: want it with tenants or discover"},
			{"tenants: [{key: a, url: b}]\nparallel: 0", "parallel is 0: want a whole number of 1 or more"},
			{"tenants: [{key: a, url: b}]\nmax-connections: many", `max-connections is "many": want a whole number of 1 or more`},
			{"tenants: [{key: a, url: b}]\nmax-idle: 5", "max-idle is 5: want a time such as 30s, of 1ms or more"},
			{"tenants: [{key: a, url: b, uri: S3CRET}]", "is no configuration file"},
			{
				"max-connections: 9\ndiscover: {schemas: {" + from + ", pattern: x}}",
				"those of discover.schemas share the connections of one: want pool_max_conns in that URL",
			},
			{"discover: postgres://me:S3CRET@h/shop", "discover is no section"},
			{"discover: {every: 1m}", "discover says nothing to ask: want query, schemas or databases"},
			{
				"discover: {every: 1ms, query: {" + from + ", sql: x}}",
				`discover.every is "1ms": want a time such as 30s, of 100ms or more`,
			},
			{
				"discover: {evry: 1m, query: {" + from + ", sql: x}}",
				`discover has the field "evry", which does not exist: want every, query,`,
			},
			{"discover: {query: {" + from + ", sql: x}, schemas: {}}", "discover has query and schemas: want one of them"},
			{"discover: {query: {" + from + "}}", "discover.query.sql is missing"},
			{"discover: {query: {" + from + ", sql: [S3CRET]}}", "discover.query.sql has no text"},
			{"discover: {query: {" + from + ", source: shop, sql: x}}", "discover.query has url and source: want one of them"},
			{
				"discover: {query: {sql: x}}",
				"discover.query.url is missing: want postgres://…, sqlite:… or sqlserver://…, or source",
			},
			{"discover: {query: {" + from + ", pattern: x}}", `discover.query has the field "pattern"`},
			{"discover: {schemas: {" + from + "}}", "discover.schemas.pattern is missing: want a name with *, such as tenant_*"},
			{
				"discover: {schemas: {url: 'mongodb://me:S3CRET@h/shop', pattern: x}}",
				"discover.schemas.url is mongodb://me:xxxxx@h/shop: want postgres://…",
			},
			{
				"discover: {schemas: {url: 'postgres://me:S3CRET@h/a?schema=b', pattern: x}}",
				"discover.schemas: the URL postgres://me:xxxxx@h/a?schema=b has the parameter schema: want none",
			},
			{"discover: {query: {url: 'mongodb://me:S3CRET@h/shop', sql: x}}", "want postgres://…, sqlite:… or sqlserver://…"},
			{"discover: {query: {url: 'S3CRET', sql: x}}", "discover.query.url: "},
			{"discover: {databases: {" + from + ", pattern: x}}", "want mongodb://…"},
			{
				"discover: {schemas: {source: nowhere, pattern: x}}",
				`discover.schemas.source is "nowhere": want the variable OUTMILL_SOURCES_NOWHERE_<PROVIDER>_CONNECTION_STRING with postgres://…`,
			},
		} {
			for _, args := range [][]string{{"status"}, {"status", "--tenant", "acme"}, {"forward", "--to", "memory:"}} {
				got := tool(t, append(args, "--config", writeFile(t, tc.text))...)
				require.Equal(t, exitUsage, got.code, "%s: %s", tc.text, got.stderr)
				require.NotContains(t, got.stderr, "S3CRET")
				if len(args) == 1 || args[0] == "forward" {
					require.Contains(t, got.stderr, tc.want)
				}
			}
		}
	})
}
