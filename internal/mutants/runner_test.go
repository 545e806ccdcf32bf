package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/mutants/catalog"
)

const shop = `package shop

func Price() int { return 7 }

func Name() string { return "shop" }
`

const shopTest = `package shop

import "testing"

var rounds int

func TestShop(t *testing.T) {
	t.Run("has its price (OBX-001)", func(t *testing.T) {
		if Price() != 7 {
			t.Error(Price())
		}
	})
	t.Run("has its name (OBX-002)", func(t *testing.T) {
		if Name() == "" {
			t.Error("it has none")
		}
	})
	t.Run("is open (OBX-003)", func(t *testing.T) { t.Skip("skipped: it is night") })
	t.Run("is red (OBX-004)", func(t *testing.T) { t.Error("it is blue") })
	t.Run("is lucky (OBX-007)", func(t *testing.T) {
		if rounds++; rounds > 1 && Price() != 7 {
			t.Error("this time it is not")
		}
	})
	t.Run("does not panic (OBX-005)", func(t *testing.T) { _ = []int{7}[Price()-7] })
}
`

// newShop makes a module of its own, with a runner for it.
func newShop(t *testing.T) *runner {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module shop\n\ngo 1.24\n", "shop/shop.go": shop, "shop/shop_test.go": shopTest, "go.work": "go 1.24\n\nuse .\n",
	} {
		file := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	r, err := newRunner(root)
	require.NoError(t, err)
	t.Cleanup(r.close)
	return r
}

func mutant(key, before, after string) *catalog.Mutant {
	return &catalog.Mutant{
		Key: key, Words: "breaks it", File: "shop/shop.go", Packages: []string{"./shop"}, Bears: key, Old: before, New: after, Place: "a.txt:1",
	}
}

func TestRunner(t *testing.T) {
	t.Parallel()
	r := newShop(t)
	const price, name = "func Price() int { return 7 }\n", "func Name() string { return \"shop\" }\n"

	t.Run("names the test that notices, and leaves the checkout as it is", func(t *testing.T) {
		by, err := r.try(t.Context(), mutant("OBX-001", price, "func Price() int { return 8 }\n"))
		require.NoError(t, err)
		require.Equal(t, "TestShop/has_its_price_(OBX-001)", by)
		text, err := os.ReadFile(filepath.Join(r.root, "shop", "shop.go"))
		require.NoError(t, err)
		require.Equal(t, shop, string(text))
	})

	t.Run("a panic notices, too", func(t *testing.T) {
		by, err := r.try(t.Context(), mutant("OBX-005", price, "func Price() int { return 6 }\n"))
		require.NoError(t, err)
		require.Equal(t, "TestShop/does_not_panic_(OBX-005)", by)
	})

	t.Run("a test that notices by chance has more than one try", func(t *testing.T) {
		by, err := r.try(t.Context(), mutant("OBX-007", price, "func Price() int { return 8 }\n"))
		require.NoError(t, err)
		require.Equal(t, "TestShop/is_lucky_(OBX-007)", by)
	})

	const cheap, bank = "func Price() int { return 8 }\n", "func Name() string { return \"bank\" }\n"
	gone := mutant("OBX-001", price, cheap)
	gone.File = "shop/gone.go"
	elsewhere := mutant("OBX-001", price, cheap)
	elsewhere.Packages = []string{"./gone"}
	for name, c := range map[string]struct {
		mutant *catalog.Mutant
		want   string
	}{
		"a mutant that nobody notices is an error":       {mutant("OBX-002", name, bank), "OBX-002 survives: breaks it"},
		"the text of an error names the line to look at": {mutant("OBX-002", name, bank), "a.txt:1"},
		"a mutant that does not compile is an error":     {mutant("OBX-001", price, "func Price() int { return }\n"), "does not compile"},
		"a mutant of other code is an error":             {mutant("OBX-001", "func Old() {}\n", "\n"), "does not have the lines"},
		"a test that is skipped notices nothing":         {mutant("OBX-003", price, cheap), "are skipped; start the engine"},
		"a test that fails anyway notices nothing":       {mutant("OBX-004", price, cheap), "fail without the mutant"},
		"a promise without a test is an error":           {mutant("OBX-006", price, cheap), "no test of ./shop"},
		"a mutant of a file that is gone is an error":    {gone, "OBX-001"},
		"a package that is gone is an error":             {elsewhere, "no test of ./gone"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.try(t.Context(), c.mutant)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestRun(t *testing.T) {
	t.Parallel()

	t.Run("a seed chooses the same mutants again, and is printed", func(t *testing.T) {
		t.Parallel()
		list := func(args ...string) string {
			var out bytes.Buffer
			require.NoError(t, run(t.Context(), append(args, "-list"), &out, &out))
			return out.String()
		}
		ten := list("-n", "10", "-seed", "7")
		require.Equal(t, ten, list("-n", "10", "-seed", "7"))
		require.NotEqual(t, ten, list("-n", "10", "-seed", "8"))
		require.Equal(t, 11, bytes.Count([]byte(ten), []byte("\n")))
		require.Contains(t, ten, "go run ./internal/mutants -n 10 -seed 7\n")
		require.Contains(t, list("-row", "OBX-030"), "OBX-030: ")
		require.NotContains(t, list("-from", "OBX-030"), "OBX-029: ")
	})

	t.Run("a key that no mutant has is an error", func(t *testing.T) {
		t.Parallel()
		for _, flag := range []string{"-row", "-from"} {
			require.ErrorContains(t, run(t.Context(), []string{flag, "OBX-999", "-list"}, &bytes.Buffer{}, &bytes.Buffer{}), `"OBX-999"`)
		}
	})
}
