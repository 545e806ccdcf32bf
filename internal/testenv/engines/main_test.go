package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/kafkaengine"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/internal/testenv/mongoengine"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/internal/testenv/mysqlengine"
	"github.com/outmill/outmill/internal/testenv/postgresengine"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func command(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	// The context of a test ends before its cleanup, which must stop engines.
	err = run(context.WithoutCancel(t.Context()), args, &out, &errs)
	return out.String(), errs.String(), err
}

func TestEngines_Serial(t *testing.T) {
	t.Run("an engine that is there already is taken as it is", func(t *testing.T) {
		addr := kafkatest.Fake(t).Addrs[0]
		t.Setenv(kafkaengine.EnvURL, addr)
		dir := t.TempDir()
		stdout, stderr, err := command(t, "start", "-dir", dir, "-only", "kafka")
		require.NoError(t, err)
		require.Equal(t, "export OUTMILL_TEST_KAFKA_URL='"+addr+"'\n", stdout)
		require.Contains(t, stderr, "found")
		_, _, err = command(t, "stop", "-dir", dir, "-only", "kafka")
		require.NoError(t, err)
		require.NoError(t, kafkaengine.Check(t.Context(), []string{addr}))
	})

	t.Run("a missing engine is an error only with -require", func(t *testing.T) {
		t.Setenv(kafkaengine.EnvURL, "127.0.0.1:1")
		stdout, stderr, err := command(t, "start", "-dir", t.TempDir(), "-only", "kafka")
		require.NoError(t, err)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "kafka is not available: OUTMILL_TEST_KAFKA_URL=127.0.0.1:1")
		_, _, err = command(t, "start", "-dir", t.TempDir(), "-only", "kafka", "-require")
		require.ErrorContains(t, err, "kafka")
	})

	t.Run("a postgres that is there already is taken as it is", func(t *testing.T) {
		url := postgrestest.Server(t)
		t.Setenv(postgresengine.EnvURL, url)
		dir := t.TempDir()
		stdout, stderr, err := command(t, "start", "-dir", dir, "-only", "postgres")
		require.NoError(t, err)
		require.Equal(t, "export OUTMILL_TEST_POSTGRES_URL='"+url+"'\n", stdout)
		require.Contains(t, stderr, "found")
		_, _, err = command(t, "stop", "-dir", dir)
		require.NoError(t, err)
		require.NoError(t, postgresengine.Check(t.Context(), url))
	})

	t.Run("a named postgres that does not answer is not available", func(t *testing.T) {
		t.Setenv(postgresengine.EnvURL, "postgres://postgres:secret@127.0.0.1:1/postgres")
		_, stderr, err := command(t, "start", "-dir", t.TempDir(), "-only", "postgres", "-require")
		require.ErrorContains(t, err, "postgres")
		require.Contains(t, stderr, "postgres is not available: OUTMILL_TEST_POSTGRES_URL")
		require.NotContains(t, stderr, "secret")
	})

	t.Run("a real postgres is started once and stopped", func(t *testing.T) {
		if testing.Short() {
			t.Skip("skipped: no PostgreSQL is started under -short")
		}
		t.Setenv(postgresengine.EnvURL, "")
		dir := t.TempDir()
		t.Cleanup(func() { _, _, _ = command(t, "stop", "-dir", dir) })
		stdout, stderr, err := command(t, "start", "-dir", dir, "-only", "postgres")
		require.NoError(t, err)
		if !strings.Contains(stderr, "ready") {
			t.Skipf("skipped: no PostgreSQL was started: %s", strings.TrimSpace(stderr))
		}
		url, ok := strings.CutPrefix(strings.TrimSpace(stdout), "export OUTMILL_TEST_POSTGRES_URL=")
		require.True(t, ok, stdout)
		url = strings.Trim(url, "'")
		require.NoError(t, postgresengine.Check(t.Context(), url))
		files, err := os.Readlink(filepath.Join(dir, "postgres"))
		require.NoError(t, err)

		again, _, err := command(t, "start", "-dir", dir, "-only", "postgres")
		require.NoError(t, err)
		require.Equal(t, stdout, again)

		_, _, err = command(t, "stop", "-dir", dir)
		require.NoError(t, err)
		require.Error(t, postgresengine.Check(t.Context(), url))
		require.NoDirExists(t, files)
		require.NoDirExists(t, filepath.Join(dir, "postgres"))
	})

	t.Run("a real mysql is started once and stopped, also where its user has no access to the directory", func(t *testing.T) {
		if _, _, err := mysqlengine.FindProgram(); err != nil {
			t.Skip(err)
		}
		t.Setenv(mysqlengine.EnvURL, "")
		dir := t.TempDir()
		require.NoError(t, os.Chmod(dir, 0o700))
		first, _, err := command(t, "start", "-dir", dir, "-only", "mysql", "-require")
		require.NoError(t, err)
		t.Cleanup(func() { _, _, _ = command(t, "stop", "-dir", dir, "-only", "mysql") })
		second, stderr, err := command(t, "start", "-dir", dir, "-only", "mysql", "-require")
		require.NoError(t, err)
		require.Equal(t, first, second)
		require.Contains(t, stderr, "runs already")
		_, stderr, err = command(t, "stop", "-dir", dir, "-only", "mysql")
		require.NoError(t, err)
		require.Contains(t, stderr, "stopped")
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
	})

	t.Run("a mongodb that is there already is taken as it is", func(t *testing.T) {
		url := mongotest.Server(t)
		t.Setenv(mongoengine.EnvURL, url)
		dir := t.TempDir()
		stdout, stderr, err := command(t, "start", "-dir", dir, "-only", "mongodb")
		require.NoError(t, err)
		require.Equal(t, "export OUTMILL_TEST_MONGODB_URL='"+url+"'\n", stdout)
		require.Contains(t, stderr, "found")
		_, _, err = command(t, "stop", "-dir", dir)
		require.NoError(t, err)
		require.NoError(t, mongoengine.Check(t.Context(), url))
	})

	t.Run("a named mongodb that is not a replica set is not available", func(t *testing.T) {
		t.Setenv(mongoengine.EnvURL, mongotest.Own(t, mongoengine.Standalone).URL)
		stdout, stderr, err := command(t, "start", "-dir", t.TempDir(), "-only", "mongodb")
		require.NoError(t, err)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "mongodb is not available: OUTMILL_TEST_MONGODB_URL: the server is not a member of a replica set")
	})

	t.Run("a mongodb that is not installed is an error only where it is required", func(t *testing.T) {
		for _, name := range []string{mongoengine.EnvURL, "PATH"} {
			t.Setenv(name, "")
		}
		stdout, stderr, err := command(t, "start", "-dir", t.TempDir(), "-only", "mongodb")
		require.NoError(t, err)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "mongodb is not available: no mongod")
		_, _, err = command(t, "start", "-dir", t.TempDir(), "-only", "mongodb", "-require")
		require.ErrorContains(t, err, "mongodb")
	})

	t.Run("a real mongodb is started once and stopped", func(t *testing.T) {
		if testing.Short() {
			t.Skip("skipped: no MongoDB is started under -short")
		}
		if _, err := mongoengine.FindProgram(t.Context()); err != nil {
			t.Skipf("skipped: no MongoDB is started: %v", err)
		}
		t.Setenv(mongoengine.EnvURL, "")
		dir := t.TempDir()
		t.Cleanup(func() { _, _, _ = command(t, "stop", "-dir", dir) })
		stdout, stderr, err := command(t, "start", "-dir", dir, "-only", "mongodb", "-require")
		require.NoError(t, err, stderr)
		url, ok := strings.CutPrefix(strings.TrimSpace(stdout), "export OUTMILL_TEST_MONGODB_URL=")
		require.True(t, ok, stdout)
		url = strings.Trim(url, "'")
		require.NoError(t, mongoengine.Check(t.Context(), url))

		again, _, err := command(t, "start", "-dir", dir, "-only", "mongodb")
		require.NoError(t, err)
		require.Equal(t, stdout, again)

		_, _, err = command(t, "stop", "-dir", dir)
		require.NoError(t, err)
		require.Error(t, mongoengine.Check(t.Context(), url))
		require.NoDirExists(t, filepath.Join(dir, "mongodb"))
		_, _, err = command(t, "stop", "-dir", dir)
		require.NoError(t, err)
	})

	t.Run("a real engine is started once and stopped", func(t *testing.T) {
		testenv.Long(t, "the start and the stop of a real Kafka")
		t.Setenv(kafkaengine.EnvURL, "")
		dir := t.TempDir()
		t.Cleanup(func() { _, _, _ = command(t, "stop", "-dir", dir) })
		stdout, stderr, err := command(t, "start", "-dir", dir, "-only", "kafka")
		require.NoError(t, err)
		if !strings.Contains(stderr, "ready") {
			t.Skipf("skipped: no real Kafka was started: %s", strings.TrimSpace(stderr))
		}
		addr, ok := strings.CutPrefix(strings.TrimSpace(stdout), "export OUTMILL_TEST_KAFKA_URL=")
		require.True(t, ok, stdout)
		brokers := []string{strings.Trim(addr, "'")}
		require.NoError(t, kafkaengine.Check(t.Context(), brokers))

		again, _, err := command(t, "start", "-dir", dir, "-only", "kafka")
		require.NoError(t, err)
		require.Equal(t, stdout, again)

		_, _, err = command(t, "stop", "-dir", dir)
		require.NoError(t, err)
		require.Error(t, kafkaengine.Check(t.Context(), brokers))
		require.NoDirExists(t, filepath.Join(dir, "kafka"))
		_, _, err = command(t, "stop", "-dir", dir)
		require.NoError(t, err)
	})
}

func TestEngines(t *testing.T) {
	t.Parallel()

	t.Run("a command line that makes no sense is refused", func(t *testing.T) {
		t.Parallel()
		for _, args := range [][]string{{}, {"start"}, {"stop"}, {"dance", "-dir", t.TempDir()}, {"start", "-dir", t.TempDir(), "-what"},
			{"start", "-dir", t.TempDir(), "-only", "cassandra"}} {
			_, _, err := command(t, args...)
			require.Error(t, err, "%q", args)
		}
	})

	t.Run("stop ends only what start has started", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		// The file has the pid of a process that start did not start: this one.
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "kafka"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "kafka", "pid"), []byte(strconv.Itoa(os.Getpid())), 0o600))
		_, _, err := command(t, "stop", "-dir", dir)
		require.NoError(t, err)
		require.NoDirExists(t, filepath.Join(dir, "kafka"))
	})
}
