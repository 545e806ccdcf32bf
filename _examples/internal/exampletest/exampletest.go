// Package exampletest runs the small examples on real databases.
package exampletest

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outmill/outmill/_examples/internal/example"
)

// TwoSales is the output of a program that shows example.TwoSales.
const TwoSales = `book: committed
yacht: rolled back, card declined
sold:         book
delivered:    book
OK: what was committed was delivered, and nothing else
`

// Savepoints is the output of a program that shows the story of example.Savepoints.
const Savepoints = `book: committed
yacht: rolled back, card declined
vase: committed; its wrapping: rolled back to the savepoint, out of ribbon
lamp: committed; its bulb: committed, in a savepoint
sold:         book, bulb, lamp, vase
delivered:    book, bulb, lamp, vase
OK: what was committed was delivered, and nothing else
`

// Main is for TestMain. It fails if goroutines are left.
func Main(m *testing.M) { goleak.VerifyTestMain(m) }

// Case is a program on a real database.
type Case[P any] struct {
	Engine  example.Engine[P]
	Program example.Program[P]
	URL     string
	// Gone requires that nothing of a removed place is left in the database.
	Gone func(t *testing.T, place P)
}

// Test runs the program to its end, and requires that it prints the output. It runs it
// a second time, and interrupts it when it has begun to print. Both times nothing may
// be left in the database.
func (c Case[P]) Test(t *testing.T, output string) {
	t.Helper()
	t.Run("what was committed is delivered, and nothing else", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		place, err := c.run(t.Context(), &out)
		require.NoError(t, err, out.String())
		require.Equal(t, output, out.String())
		c.Gone(t, place)
	})
	t.Run("an interruption ends it and leaves nothing behind", func(t *testing.T) {
		t.Parallel()
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		place, err := c.run(ctx, interrupter(interrupt))
		require.ErrorIs(t, err, context.Canceled)
		c.Gone(t, place)
	})
}

// TestUnusable requires that an error about any of the URLs names the host, and not
// the password S3CRET.
func (c Case[P]) TestUnusable(t *testing.T, urls map[string]string) {
	t.Helper()
	for name, url := range urls {
		t.Run(name+": the error names the host without the password", func(t *testing.T) {
			t.Parallel()
			err := example.Run(t.Context(), url, io.Discard, c.Engine, c.Program)
			require.ErrorContains(t, err, "127.0.0.1")
			require.NotContains(t, err.Error(), "S3CRET")
		})
	}
}

func (c Case[P]) run(ctx context.Context, out io.Writer) (place P, err error) {
	err = example.Run(ctx, c.URL, out, c.Engine, func(ctx context.Context, p P, out io.Writer) error {
		place = p
		return c.Program(ctx, p, out)
	})
	return place, err
}

type interrupter func()

func (i interrupter) Write(p []byte) (int, error) {
	i()
	return len(p), nil
}
