package example_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/internal/testenv/mysqltest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
)

// sale is a way to sell that may be wrong.
type sale struct {
	db *example.SQL
	// withoutTx publishes outside the transaction.
	withoutTx bool
	// copies is the number of messages of each sale.
	copies int
	// ignores commits every transaction, and forgets commits none.
	ignores, forgets bool
}

func (s sale) sell(ctx context.Context, item string, ending error) error {
	err := example.InTx(ctx, s.db.DB, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO sales (item) VALUES ($1)`, item); err != nil {
			return err
		}
		if err := s.publish(s.db.Store.WithTx(ctx, tx), item); err != nil {
			return err
		}
		switch {
		case s.ignores:
			return nil
		case s.forgets:
			return errForgotten
		}
		return ending
	})
	if errors.Is(err, errForgotten) {
		return ending
	}
	return err
}

var errForgotten = errors.New("forgotten")

func (s sale) publish(ctx context.Context, item string) error {
	if s.withoutTx {
		ctx = context.Background()
	}
	for range s.copies {
		if err := s.db.Publisher.WithContext(ctx).Publish(example.Topic,
			message.NewMessage(watermill.NewUUID(), message.Payload(item))); err != nil {
			return err
		}
	}
	return nil
}

func TestStory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sale    sale
		mistake string
	}{
		"sales and messages that belong together are shown":        {sale{copies: 1}, ""},
		"a message too many fails":                                 {sale{copies: 2}, "delivered"},
		"a message that is missing fails":                          {sale{copies: 0}, "delivered"},
		"a transaction that was not rolled back fails":             {sale{copies: 1, ignores: true}, "got no error"},
		"a transaction that was not committed fails":               {sale{copies: 1, forgets: true}, "sold and delivered"},
		"a message that is published outside a transaction fails":  {sale{copies: 1, withoutTx: true}, "transaction"},
		"the error of a step names the step, which is not printed": {sale{copies: 1, ignores: true}, "yacht: rolled back"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			err := example.Run(t.Context(), example.OnSQL.Default, &out, example.OnSQL,
				func(ctx context.Context, db *example.SQL, out io.Writer) error {
					if _, err := db.DB.ExecContext(ctx, `CREATE TABLE sales (item text PRIMARY KEY)`); err != nil {
						return err
					}
					c.sale.db = db
					return db.Show(ctx, out, example.TwoSales(c.sale.sell))
				})
			if c.mistake == "" {
				require.NoError(t, err)
				require.Contains(t, out.String(), "OK")
				return
			}
			require.ErrorContains(t, err, c.mistake)
			require.NotContains(t, out.String(), "OK")
		})
	}
}

func TestOnSQL(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ url, dialect string }{
		"a program runs on SQLite unless a database is named": {example.OnSQL.Default, example.SQLite},
		"a URL of PostgreSQL is taken":                        {postgrestest.Database(t), example.PostgreSQL},
		"a URL of MySQL is taken":                             {mysqltest.Server(t), example.MySQL},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, example.Run(t.Context(), c.url, io.Discard, example.OnSQL,
				func(ctx context.Context, db *example.SQL, _ io.Writer) error {
					require.Equal(t, c.dialect, db.Dialect)
					return db.DB.PingContext(ctx)
				}))
		})
	}
	t.Run("another URL is refused without its password", func(t *testing.T) {
		t.Parallel()
		err := example.Run(t.Context(), "oracle://me:S3CRET@127.0.0.1/x", io.Discard, example.OnSQL,
			func(context.Context, *example.SQL, io.Writer) error { return nil })
		require.ErrorContains(t, err, "want a URL")
		require.NotContains(t, err.Error(), "S3CRET")
	})
}
