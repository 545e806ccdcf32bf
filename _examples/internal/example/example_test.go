package example

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outmill/outmill/internal/testenv/postgrestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestExample(t *testing.T) {
	t.Parallel()

	t.Run("the exit code says whether it worked", func(t *testing.T) {
		t.Parallel()
		url := postgrestest.Database(t)
		works := func(_ context.Context, _ Database, out io.Writer) error {
			_, err := fmt.Fprintln(out, "worked")
			return err
		}
		fails := func(context.Context, Database, io.Writer) error { return errors.New("it did not work") }
		for name, c := range map[string]struct {
			args        []string
			program     Program[Database]
			code        int
			out, errOut string
		}{
			"it works":               {[]string{"-database", url}, works, 0, "worked\n", ""},
			"it fails":               {[]string{"-database", url}, fails, 1, "", "shop: it did not work\n"},
			"help":                   {[]string{"-h"}, fails, 0, "", "-database"},
			"no database":            {nil, works, 2, "", "shop: want -database"},
			"something besides":      {[]string{"-database", url, "more"}, works, 2, "", "nothing else"},
			"an unknown flag":        {[]string{"-db", url}, works, 2, "", "-db"},
			"no URL":                 {[]string{"-database", "password=S3CRET"}, works, 1, "", "want a URL"},
			"another kind of URL":    {[]string{"-database", "mysql://me:S3CRET@host/x"}, works, 1, "", "want a URL"},
			"nothing listens there":  {[]string{"-database", "postgres://me:S3CRET@127.0.0.1:1/x"}, works, 1, "", "127.0.0.1"},
			"a URL that is mangled":  {[]string{"-database", "postgres://me:S3CRET@[::1/x"}, works, 1, "", "want a URL"},
			"a port that is no port": {[]string{"-database", "postgres://me:S3CRET@host:x/x"}, works, 1, "", "want a URL"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var out, errOut bytes.Buffer
				code := command(t.Context(), append([]string{"/bin/shop"}, c.args...), &out, &errOut, OnPostgres, c.program)
				require.Equal(t, c.code, code, errOut.String())
				require.Equal(t, c.out, out.String())
				require.Contains(t, errOut.String(), c.errOut)
				require.NotContains(t, errOut.String(), "S3CRET")
			})
		}
	})

	t.Run("each run has a schema that is gone afterwards", func(t *testing.T) {
		t.Parallel()
		url := postgrestest.Database(t)
		for _, want := range []error{nil, errors.New("it did not work"), context.Canceled} {
			ctx, cancel := context.WithCancel(t.Context())
			var schema string
			err := Run(ctx, url, io.Discard, OnPostgres, func(ctx context.Context, db Database, _ io.Writer) error {
				schema = db.Schema
				execute(t, db.URL, "CREATE TABLE things (name text)")
				require.Equal(t, 1, count(t, db.URL, "SELECT count(*) FROM pg_tables WHERE tablename = 'things' AND schemaname = $1", schema))
				if errors.Is(want, context.Canceled) {
					cancel()
					return ctx.Err()
				}
				return want
			})
			cancel()
			require.ErrorIs(t, err, want)
			require.Zero(t, count(t, url, "SELECT count(*) FROM pg_namespace WHERE nspname = $1", schema))
		}
	})

	t.Run("a comparison fails where anything is missing or too much", func(t *testing.T) {
		t.Parallel()
		want := []string{"a", "b"}
		for name, c := range map[string]struct {
			table, delivered []string
			ok               bool
		}{
			"all is well":         {[]string{"a", "b"}, []string{"b", "a"}, true},
			"one was lost":        {[]string{"a", "b"}, []string{"a"}, false},
			"one was made up":     {[]string{"a", "b"}, []string{"a", "b", "c"}, false},
			"one came twice":      {[]string{"a", "b"}, []string{"a", "b", "b"}, false},
			"both are as wrong":   {[]string{"a"}, []string{"a"}, false},
			"nothing is anywhere": {nil, nil, false},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var out bytes.Buffer
				err := Compare(&out, want, Column{"in the table", c.table}, Column{"delivered", c.delivered})
				if c.ok {
					require.NoError(t, err)
					require.Contains(t, out.String(), "OK")
					return
				}
				require.ErrorContains(t, err, "delivered")
				require.NotContains(t, out.String(), "OK")
			})
		}
	})
}

func execute(t *testing.T, url, statement string) {
	t.Helper()
	conn := connect(t, url)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	_, err := conn.Exec(t.Context(), statement)
	require.NoError(t, err)
}

func count(t *testing.T, url, query string, args ...any) (n int) {
	t.Helper()
	conn := connect(t, url)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	require.NoError(t, conn.QueryRow(t.Context(), query, args...).Scan(&n))
	return n
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	return conn
}
