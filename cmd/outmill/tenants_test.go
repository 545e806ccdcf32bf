package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

// tenantsFile names two stores, and further lines.
func tenantsFile(t *testing.T, acme, globex string, more ...string) string {
	t.Helper()
	return writeFile(t, "to: kafka://nowhere:9092\ntenants:\n  - {key: acme, url: '"+acme+"'}\n  - {key: globex, url: '"+globex+"'}\n"+
		strings.Join(more, "\n"))
}

func TestTenants(t *testing.T) {
	t.Parallel()
	// fill makes a pending record in acme, and two dead ones in globex.
	fill := func(t *testing.T) (acme, globex world, config string) {
		t.Helper()
		acme, globex = newWorld(t), newWorld(t)
		acme.register(t, "billing", "orders")
		acme.append(t, orders(1)...)
		globex.register(t, "billing", "orders")
		globex.append(t, orders(2)...)
		require.Equal(t, 2, globex.kill(t, "billing", "orders", "no route"))
		return acme, globex, tenantsFile(t, acme.url, globex.url)
	}

	t.Run("status, list and show name the store of each record", func(t *testing.T) {
		t.Parallel()
		_, _, config := fill(t)
		table := ok(t, "status", "--config", config)
		require.Regexp(t, `(?m)^STORE +GROUP`, table)
		require.Regexp(t, `(?m)^acme +billing +orders +1 `, table)
		require.Regexp(t, `(?m)^globex +billing +orders +0 `, table)
		report := okJSON[statusReport](t, "status", "--config", config)
		require.Len(t, report.Topics, 2)
		require.Equal(t, []string{"acme", "globex"}, []string{report.Topics[0].Store, report.Topics[1].Store})
		require.Regexp(t, `(?m)^STORE +ID`, ok(t, "list", "--config", config))
		listed := okJSON[listReport](t, "list", "--config", config, "--status", "dead")
		require.Len(t, listed.Records, 2)
		require.Equal(t, "globex", listed.Records[0].Store)
		require.Contains(t, ok(t, "show", "--config", config, listed.Records[0].ID), "globex")
		require.Contains(t, ok(t, "why", "--config", config, listed.Records[0].ID), "store globex")
		require.Contains(t, ok(t, "groups", "list", "--config", config), "billing")
	})

	t.Run("dead and audit name the store of each record", func(t *testing.T) {
		t.Parallel()
		_, _, config := fill(t)
		table := ok(t, "dead", "--config", config)
		require.Regexp(t, `(?m)^STORE +ID`, table)
		require.Regexp(t, `(?m)^globex +\S+ +billing`, table)
		require.Equal(t, "globex", okJSON[deadReport](t, "dead", "--config", config).Letters[0].Store)
		ok(t, "requeue", "--config", config, "--by", "ann")
		table = ok(t, "audit", "--config", config)
		require.Regexp(t, `(?m)^STORE +AT`, table)
		require.Regexp(t, `(?m)^globex +\S+ +ann +requeue`, table)
		require.Equal(t, "globex", okJSON[auditReport](t, "audit", "--config", config).Entries[0].Store)
		require.Regexp(t, `(?m)^ID`, ok(t, "list", "--config", config, "--tenant", "acme"), "one store needs no column")
	})

	t.Run("several tenants take the plural", func(t *testing.T) {
		t.Parallel()
		a, b := newWorld(t), newWorld(t)
		config := tenantsFile(t, a.url, b.url)
		require.Equal(t, "2 tenants have no records.\n", ok(t, "status", "--config", config))
		require.Equal(t, "2 tenants are fine.\n", ok(t, "doctor", "--config", config))
		require.Equal(t, "The schemas in 2 tenants are up to date.\n", ok(t, "schema", "ensure", "--config", config))
		require.Equal(t, "The schemas in 2 tenants fit this version of outmill.\n", ok(t, "schema", "status", "--config", config))
		require.Equal(t, a.url+" has no records.\n", ok(t, "status", "--config", config, "--tenant", "acme"))
		a.register(t, "billing", "orders")
		a.append(t, orders(1)...)
		a.kill(t, "billing", "orders", "no route")
		require.Contains(t, tool(t, "doctor", "--config", config).stdout, "2 tenants have 0 failures and 1 warning.")
	})

	t.Run("requeue and delete work in all stores", func(t *testing.T) {
		t.Parallel()
		acme, globex, config := fill(t)
		require.Contains(t, ok(t, "requeue", "--config", config), "2 records requeued")
		require.Equal(t, 2, globex.statusOf(t, "billing", "orders").Pending)
		require.Contains(t, ok(t, "delete", "--config", config, "--topic", "orders"), "3 records deleted")
		require.Zero(t, acme.statusOf(t, "billing", "orders").Pending)
	})

	t.Run("tenant picks the store of one of them", func(t *testing.T) {
		t.Parallel()
		acme, globex, config := fill(t)
		report := okJSON[statusReport](t, "status", "--config", config, "--tenant", "acme")
		require.Len(t, report.Topics, 1)
		require.Equal(t, 1, report.Topics[0].Pending)
		require.Empty(t, okJSON[listReport](t, "list", "--config", config, "--tenant", "acme", "--status", "dead").Records)
		require.Contains(t, ok(t, "requeue", "--config", config, "--tenant", "acme"), "0 records requeued")
		require.Contains(t, ok(t, "requeue", "--config", config, "--tenant", "globex"), "2 records requeued")
		require.Equal(t, 2, globex.statusOf(t, "billing", "orders").Pending)
		ok(t, "groups", "drop", "--config", config, "--tenant", "globex", "billing", "--yes")
		require.Equal(t, 1, acme.statusOf(t, "billing", "orders").Pending)
		ok(t, "publish", "--config", config, "--tenant", "globex", "--topic", "returns", "--payload", "x")
		require.Equal(t, 1, globex.statusOf(t, "", "returns").Pending)
	})

	t.Run("a pause is for all stores", func(t *testing.T) {
		t.Parallel()
		_, _, config := fill(t)
		ok(t, "groups", "pause", "--config", config, "--topic", "orders", "--reason", "repair")
		require.Contains(t, ok(t, "groups", "list", "--config", config, "--tenant", "acme"), "repair")
		require.Contains(t, ok(t, "groups", "list", "--config", config, "--tenant", "globex"), "repair")
		ok(t, "groups", "resume", "--config", config, "--topic", "orders")
	})

	t.Run("doctor names the store, and one that cannot be opened", func(t *testing.T) {
		t.Parallel()
		acme, _, _ := fill(t)
		report := diagnose(t, exitFailed, "--config", tenantsFile(t, acme.url, "postgres://me:S3CRET@127.0.0.1:1/shop"))
		require.Len(t, report.Problems, 1)
		require.Equal(t, []string{"store_unreachable", "globex"}, []string{report.Problems[0].Kind, report.Problems[0].Store})
		_, _, config := fill(t)
		report = diagnose(t, exitFailed, "--config", config)
		require.Equal(t, []string{"dead_records", "globex"}, []string{report.Problems[0].Kind, report.Problems[0].Store})
		require.Len(t, report.Problems, 1)
		diagnose(t, exitOK, "--config", config, "--tenant", "acme")
	})

	t.Run("a result without a store that cannot be opened is a failure, and is shown", func(t *testing.T) {
		t.Parallel()
		acme, _, _ := fill(t)
		got := tool(t, "status", "--config", tenantsFile(t, acme.url, "postgres://me:S3CRET@127.0.0.1:1/shop"))
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stdout, "acme")
		require.Contains(t, got.stderr, "the result is without 1 tenant")
		require.Contains(t, got.stderr, "globex: ")
		require.NotContains(t, got.stderr, "S3CRET")
	})

	t.Run("a tenant that fails does not hide the others, and no command succeeds then", func(t *testing.T) {
		t.Parallel()
		_, globex, _ := fill(t)
		file := newFile(t)
		require.NoError(t, openDB(t, file).PingContext(t.Context()))
		config := tenantsFile(t, "sqlite:"+file, globex.url)
		dead := okJSON[listReport](t, "list", globex.url, "--status", "dead").Records
		id := dead[0].ID
		ok(t, "skip", "--config", config, dead[1].ID, "--dry-run")
		ok(t, "edit", "--config", config, dead[1].ID, "--set", "version=2", "--requeue")
		for _, args := range [][]string{
			{"status"}, {"list"}, {"dead"}, {"groups", "list"}, {"why", id}, {"requeue", "--dry-run"},
			{"requeue", "--by", "ann", "--yes"}, {"audit"},
			{"requeue", id, outmill.NewWorkItemID().String()},
		} {
			got := tool(t, append(args, "--config", config)...)
			require.Equal(t, exitFailed, got.code, args)
			require.Regexp(t, `globex|billing|record|ann`, got.stdout, "%v shows what the other has", args)
			require.Contains(t, got.stderr, `in member "acme"`, args)
			require.Contains(t, got.stderr, "outmill schema ensure --config "+config, args)
		}
		require.Equal(t, 2, globex.statusOf(t, "billing", "orders").Pending)
		var report listReport
		require.NoError(t, json.Unmarshal([]byte(tool(t, "list", "-o", "json", "--config", config).stdout), &report))
		require.Len(t, report.Records, 2)
		require.False(t, report.Done, "acme may have more")
		got := tool(t, "delete", "--topic", "orders", "--config", config)
		require.Equal(t, exitUsage, got.code)
		require.Contains(t, got.stderr, "--yes", "it asks, because nobody knows how many records acme has")
		require.Equal(t, 2, globex.statusOf(t, "billing", "orders").Pending)
		got = tool(t, "why", "--config", config, "no-such-message")
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stdout, "acme did not answer, so ask again")
	})

	t.Run("a file with one store needs no URL, and a URL wins over it", func(t *testing.T) {
		t.Parallel()
		w, other := newWorld(t), newWorld(t)
		w.append(t, &outmill.Record{Topic: "mine"})
		config := writeFile(t, "to: kafka://nowhere:9092\nurl: '"+w.url+"'\n")
		require.Contains(t, ok(t, "status", "--config", config), "mine")
		require.NotContains(t, ok(t, "status", other.url, "--config", config), "mine")
	})

	t.Run("tenant is a filter, and picks no store of the file, if a URL wins over the file", func(t *testing.T) {
		t.Parallel()
		acme, _, config := fill(t)
		other := newWorld(t)
		other.append(t, &outmill.Record{Topic: "orders", TenantID: "acme"}, &outmill.Record{Topic: "orders", TenantID: "globex"})
		require.Len(t, okJSON[listReport](t, "list", other.url, "--config", config, "--tenant", "acme").Records, 1)
		require.Contains(t, ok(t, "delete", other.url, "--config", config, "--tenant", "acme", "--yes"), "1 record deleted")
		require.Equal(t, 1, other.statusOf(t, "", "orders").Pending, "the records of other tenants stay")
		require.Equal(t, 1, acme.statusOf(t, "billing", "orders").Pending)
		id := outmill.NewWorkItemID().String()
		for _, args := range [][]string{{"status", other.url}, {"show", other.url, id}} {
			got := tool(t, append(args, "--config", config, "--tenant", "acme")...)
			require.Equal(t, exitUsage, got.code, got.stderr)
			require.Contains(t, got.stderr, "--tenant picks one of the tenants in the file of --config: want it without a URL and without --source")
		}
	})

	t.Run("wrong usage is refused", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		config := tenantsFile(t, w.url, w.url+"2")
		for want, args := range map[string][]string{
			"has acme, globex": {"status", "--config", config, "--tenant", "initech"},
			"there are none":   {"status", w.url, "--tenant", "acme"},
			"--tenant is missing: want the tenant whose schema is printed, because the stores may be of different kinds: " + config +
				" has acme, globex": {"schema", "print", "--config", config},
			"--tenant is missing: want the tenant whose store gets the messages: " + config + " has acme, globex": {"publish", "--config", config,
				"--topic", "orders", "--payload", "x"},
			"no configuration file": {"status", "--config", writeFile(t, "to: [S3CRET\n")},
		} {
			got := tool(t, args...)
			require.Equal(t, exitUsage, got.code, "%v: %s", args, got.stderr)
			require.Contains(t, got.stderr, want)
			require.Empty(t, got.stdout)
		}
	})

	t.Run("schema print prints the schema of the store that tenant picks", func(t *testing.T) {
		t.Parallel()
		acme := newWorld(t)
		config := tenantsFile(t, acme.url, "postgres://me:S3CRET@127.0.0.1:1/shop")
		require.Equal(t, ok(t, "schema", "print", acme.url), ok(t, "schema", "print", "--config", config, "--tenant", "acme"))
	})
}
