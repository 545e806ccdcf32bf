package mongo_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/mongo"
)

// measuring are the functions that read this machine's clock, only to measure how much time
// passes, by its monotonic part, which no adjustment moves. So an error of a client's clock has
// no effect, and no test has to set a clock.
var measuring = []string{
	"InTx", "againUntil", "againWhile", "ahead", "claimed", "estimate", "keep", "keepListening", "known",
	"loadState", "look", "noLanes", "readPage", "run", "stands", "take", "writeNotes",
}

// comparing are the functions of Examine that read this machine's clock to compare it with the
// server's, and to give a finding its time. They change no record.
var comparing = []string{"Operations", "examine"}

func TestStore_Clock(t *testing.T) {
	t.Parallel()

	t.Run("the clock of the client is only used to measure how much time passes", func(t *testing.T) {
		t.Parallel()
		files, err := filepath.Glob("*.go")
		require.NoError(t, err)
		parts, err := filepath.Glob("internal/*/*.go")
		require.NoError(t, err)
		var readers []string
		for _, file := range slices.Concat(files, parts) {
			if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, filepath.Join("internal", "next")) {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			require.NoError(t, err)
			for _, declared := range parsed.Decls {
				ast.Inspect(declared, func(n ast.Node) bool {
					if called, ok := n.(*ast.SelectorExpr); ok && readsClock(called) {
						readers = append(readers, nameOf(declared))
					}
					return true
				})
			}
		}
		slices.Sort(readers)
		require.Equal(t, slices.Sorted(slices.Values(slices.Concat(measuring, comparing))), slices.Compact(readers))
	})

	t.Run("the server's time is its last answer plus the time since the request", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		server := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
		asked := time.Now().Add(-3 * time.Second)
		s.Believe(server, asked)
		before := time.Since(asked)
		believed, good := s.Believed()
		require.True(t, good)
		require.GreaterOrEqual(t, believed.Sub(server), before, "it is not behind")
		require.LessOrEqual(t, believed.Sub(server), time.Since(asked))
		s.Believe(server, time.Now().Add(-mongo.ClockGood))
		_, good = s.Believed()
		require.False(t, good, "an old answer is not relied on")

		// Every read of the registrations also reads the server's clock.
		require.NoError(t, s.Append(t.Context(), one("one")))
		found, err := s.List(t.Context(), outmill.ListQuery{})
		require.NoError(t, err)
		believed, good = s.Believed()
		require.True(t, good)
		require.False(t, believed.Before(found[0].CreatedAt))
		require.Less(t, believed.Sub(found[0].CreatedAt), patience)
	})

	t.Run("a store with a wrong estimate of the server's time claims nothing too early", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		require.NoError(t, s.Append(t.Context(),
			&outmill.Record{Topic: "orders", Key: "a", MessageID: "delayed", Delay: 30 * time.Minute},
			&outmill.Record{Topic: "orders", Key: "b", MessageID: "leased"},
			&outmill.Record{Topic: "orders", Key: "c", MessageID: "waiting"},
		))
		owner := outmill.NewOwnerToken()
		found := claimed(t, s, claimOf(owner, 3, outmill.OrderNone))
		require.Equal(t, []string{"leased", "waiting"}, namesOf(found))
		require.NoError(t, s.Abandon(t.Context(), []outmill.Settlement{{Lease: found[1].Lease(), Delay: 30 * time.Minute}}))

		ahead := func() { s.Believe(time.Now().Add(time.Hour), time.Now()) }
		for _, order := range []outmill.Order{outmill.OrderKey, outmill.OrderTopic} {
			ahead()
			require.Empty(t, claimed(t, s, claimOf(outmill.NewOwnerToken(), 10, order, "orders")), order)
		}
		ahead()
		n, err := s.ReapExpired(t.Context(), 10)
		require.NoError(t, err)
		require.Zero(t, n)
		require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: "orders", Key: "d", MessageID: "mortal", TimeToLive: 30 * time.Minute}))
		ahead()
		n, err = s.ExpireDue(t.Context(), 10)
		require.NoError(t, err)
		require.Zero(t, n)
		held, err := s.Extend(t.Context(), time.Minute, leasesOf(found))
		require.NoError(t, err)
		require.Equal(t, leasesOf(found[:1]), held)

		// With the right time, the store claims the record.
		s.Believe(time.Time{}, time.Time{})
		require.Equal(t, []string{"mortal"}, namesOf(claimed(t, s, claimOf(owner, 10, outmill.OrderKey, "orders"))))
	})
}

func readsClock(called *ast.SelectorExpr) bool {
	of, ok := called.X.(*ast.Ident)
	return ok && of.Name == "time" && slices.Contains([]string{"Now", "Since", "Until"}, called.Sel.Name)
}

func nameOf(declared ast.Decl) string {
	if fn, ok := declared.(*ast.FuncDecl); ok {
		return fn.Name.Name
	}
	return fmt.Sprintf("%T", declared)
}
