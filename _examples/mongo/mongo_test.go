package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill/_examples/internal/exampletest"
	"github.com/outmill/outmill/internal/testenv/mongotest"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

func Test_what_was_committed_is_handled_and_forwarded_and_nothing_else(t *testing.T) {
	t.Parallel()
	url := mongotest.Server(t)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), url, &out), out.String())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Contains(t, lines[0], "MongoDB: database outmill_example_")
	require.Equal(t, "committed=260 rolled_back=40 handled=260 forwarded=260 lost=0 duplicated=0", lines[len(lines)-1])
	requireDropped(t, url, strings.Fields(lines[0])[2])
}

func Test_an_interruption_ends_it_and_leaves_nothing_behind(t *testing.T) {
	t.Parallel()
	url := mongotest.Server(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	i := &interrupter{interrupt: interrupt}
	require.ErrorIs(t, run(ctx, url, i), context.Canceled)
	requireDropped(t, url, strings.Fields(i.String())[2])
}

// interrupter ends the program when it has begun to print.
type interrupter struct {
	bytes.Buffer
	interrupt func()
}

func (i *interrupter) Write(p []byte) (int, error) {
	i.interrupt()
	return i.Buffer.Write(p)
}

func requireDropped(t *testing.T, url, database string) {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(url))
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Disconnect(context.WithoutCancel(t.Context()))) }()
	names, err := client.ListDatabaseNames(t.Context(), bson.D{})
	require.NoError(t, err)
	require.NotContains(t, names, database)
}

func Test_a_database_that_cannot_be_used_is_named_without_its_password(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"no URL of MongoDB": "postgres://me:S3CRET@127.0.0.1/x",
		"nothing listens":   "mongodb://me:S3CRET@127.0.0.1:1/?serverSelectionTimeoutMS=100",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			err := run(t.Context(), url, &out)
			require.ErrorContains(t, err, "127.0.0.1")
			require.NotContains(t, err.Error(), "S3CRET")
		})
	}
}
