package main

import (
	"context"
	"database/sql"
	"os"
	"regexp"
	"strings"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	wforwarder "github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
)

// page is the README, which the tests take their SQL and Go from.
func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	return string(text)
}

func snippets(t *testing.T, language string) []string {
	t.Helper()
	var found []string
	for _, match := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(page(t), -1) {
		found = append(found, match[1])
	}
	return found
}

func oldWriter(tx *sql.Tx) (message.Publisher, error) {
	pub, err := wsql.NewPublisher(tx, wsql.PublisherConfig{SchemaAdapter: wsql.DefaultPostgreSQLSchema{}}, nil)
	if err != nil {
		return nil, err
	}
	return wforwarder.NewPublisher(pub, wforwarder.PublisherConfig{ForwarderTopic: "forwarder_topic"}), nil
}

func newWriterOf(store *postgres.Store, pub *publisher.Publisher) func(context.Context, *sql.Tx) message.Publisher {
	newWriter := func(ctx context.Context, tx *sql.Tx) message.Publisher {
		return pub.WithContext(store.WithTx(ctx, tx))
	}
	return newWriter
}

func TestConstructors(t *testing.T) {
	t.Parallel()

	t.Run("the steps of the page lead from the old writer to the new one", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.createLog(t, "forwarder_topic", "")
		w.createQueue(t, "queue")
		fresh, err := publisher.New(w.store, publisher.Config{RequireTx: true}, nil)
		require.NoError(t, err)
		newWriter := newWriterOf(w.store, fresh)
		w.in(t, func(tx *sql.Tx) bool {
			pub, err := oldWriter(tx)
			return err == nil && pub.Publish("orders", msg("a/0000"), msg("a/0001")) == nil
		})
		w.in(t, func(tx *sql.Tx) bool {
			return newWriter(t.Context(), tx).Publish("orders", msg("a/0002")) == nil
		})
		w.writeQueue(t, "queue", "b/0000")

		statements := snippets(t, "sql")
		require.Len(t, statements, 3)
		require.Equal(t, []string{"2"}, ask(t, w.db, statements[0]))
		require.Equal(t, []string{"1"}, ask(t, w.db, statements[1]))
		for _, args := range [][]string{{"-topic", "forwarder_topic", "-enveloped"}, {"-topic", "queue", "-queue"}} {
			output, err := runOnce(t, w.sourceArgs(args...))
			require.NoError(t, err, output)
		}
		require.Equal(t, []string{"0"}, ask(t, w.db, statements[0]))
		require.Equal(t, []string{"0"}, ask(t, w.db, statements[1]))
		w.exec(t, statements[2])
		require.ElementsMatch(t, ids("a", 3), w.outbox(t, "orders"))
		require.Equal(t, ids("b", 1), w.outbox(t, "queue"))
	})

	t.Run("the go of the page is what the tests run", func(t *testing.T) {
		t.Parallel()
		own, err := os.ReadFile("constructors_test.go")
		require.NoError(t, err)
		code := regexp.MustCompile(`\s+`).ReplaceAllString(string(own), " ")
		found := snippets(t, "go")
		require.Len(t, found, 2)
		for _, snippet := range found {
			snippet = strings.Replace(strings.TrimSpace(snippet), "func newWriter(", "newWriter := func(", 1)
			require.Contains(t, code, regexp.MustCompile(`\s+`).ReplaceAllString(snippet, " "))
		}
	})

	t.Run("the page names no flag that the tool does not have", func(t *testing.T) {
		t.Parallel()
		_, err := parse([]string{"-h"}, &says{})
		require.Error(t, err)
		help := &says{}
		_, _ = parse([]string{"-h"}, help)
		for _, match := range regexp.MustCompile("[`| ](-[a-z][a-z-]+)").FindAllStringSubmatch(page(t), -1) {
			require.Contains(t, help.String(), "  "+match[1], match[0])
		}
	})
}
