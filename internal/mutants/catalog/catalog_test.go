package catalog

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const block = `# A comment.
OBX-001: forgets the commit
file: shop/shop.go
tests: ./shop ./store
 	if done {
-		commit()
+		forget()
 	}

OBX-002: no mutant, documentation: it is about the reader
default shop.Config.Size: no mutant, measured: a benchmark shows it
`

func TestCatalog(t *testing.T) {
	t.Parallel()

	t.Run("has the mutants of a file, with whole lines, and the reasons of what has none", func(t *testing.T) {
		t.Parallel()
		var c Catalog
		require.ErrorContains(t, c.parse("a.txt", block), "a.txt:10: OBX-002 has no mutant, and a change")
		c = Catalog{}
		require.NoError(t, c.parse("a.txt", block[:len(block)-len("default shop.Config.Size: no mutant, measured: a benchmark shows it\n")]))
		require.Equal(t, []*Mutant{{
			Key: "OBX-001", Words: "forgets the commit", File: "shop/shop.go", Packages: []string{"./shop", "./store"}, Bears: "OBX-001",
			Old: "\tif done {\n\t\tcommit()\n\t}\n", New: "\tif done {\n\t\tforget()\n\t}\n", Place: "a.txt:2",
		}}, c.Mutants)
		require.Equal(t, []Exception{{Key: "OBX-002", Place: "a.txt:10", Kind: Documentation, Why: "it is about the reader"}}, c.Exceptions)
	})

	t.Run("refuses what it cannot read, and names the line", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]string{
			"OBX-001\n":                                                  "the first line of a block",
			"OBX-001: no mutant, forgotten: \n":                          "the reasons are documentation, measured and engine",
			"OBX-001: breaks\nfile: a.go\n-old\n+new\n":                  "a mutant needs a line with its file and one with its tests",
			"OBX-001: breaks\nfile: a.go\ntests: ./a\n":                  "the mutant changes nothing",
			"OBX-001: breaks\nfile: a.go\ntests: ./a\n-same\n+same\n":    "the mutant changes nothing",
			"OBX-001: breaks\nfile: a.go\ntests: ./a\n-old\n+new\nold\n": "begins with a blank, - or +",
		} {
			require.ErrorContains(t, (&Catalog{}).parse("a.txt", text), want)
			require.ErrorContains(t, (&Catalog{}).parse("a.txt", text), "rows/a.txt:1: ")
		}
	})

	t.Run("a change applies to lines that stand once in the file", func(t *testing.T) {
		t.Parallel()
		m := &Mutant{Key: "OBX-001", File: "a.go", Place: "a.txt:1", Old: "b\n", New: "x\n"}
		text, err := m.Apply("a\nb\nab\n")
		require.NoError(t, err)
		require.Equal(t, "a\nx\nab\n", text)
		_, err = m.Apply("a\nab\n")
		require.ErrorContains(t, err, "OBX-001 (a.txt:1): a.go does not have the lines")
		_, err = m.Apply("b\nb\n")
		require.ErrorContains(t, err, "2 times")
	})
}

const testFile = `package shop

import "testing"

func TestShop(t *testing.T) {
	t.Run("first part", func(t *testing.T) {
		t.Run("sells (OBX-001)", func(t *testing.T) {})
		t.Run(name(), func(t *testing.T) {
			t.Run("sells again (OBX-001)", func(t *testing.T) {})
		})
	})
	t.Run("shared", helper)
	t.Run("in and/or out (OBX-006)", helper)
	for _, c := range []struct{ name string }{{"case (OBX-003)"}} {
		t.Run(c.name, func(t *testing.T) {})
	}
}

func helper(t *testing.T) { t.Run("buys (OBX-002)", func(t *testing.T) {}) }

func unused(t *testing.T) { t.Run("nothing (OBX-004)", func(t *testing.T) {}) }
`

func TestTestsBearing(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "shop"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "shop", "shop_test.go"), []byte(testFile), 0o600))

	t.Run("names each test with the subtests above it", func(t *testing.T) {
		t.Parallel()
		for number, want := range map[string]string{
			"OBX-001": "^TestShop$/^first_part$/.*/OBX-001|^TestShop$/^first_part$/OBX-001",
			"OBX-002": `^TestShop$/^in_and/or_out_\(OBX-006\)$/OBX-002|^TestShop$/^shared$/OBX-002`,
			"OBX-006": "^TestShop$/in_and$/OBX-006",
			"OBX-003": "^TestShop$/OBX-003",
		} {
			pattern, err := TestsBearing(root, "./shop", number)
			require.NoError(t, err)
			require.Equal(t, want, pattern)
			has, err := HasTest(root, "shop", number)
			require.NoError(t, err)
			require.True(t, has)
		}
	})

	t.Run("is an error for a number that no test runs", func(t *testing.T) {
		t.Parallel()
		for _, number := range []string{"OBX-004", "OBX-005"} {
			_, err := TestsBearing(root, "./shop", number)
			require.ErrorContains(t, err, `no test of ./shop has "`+number+`" in its name`)
		}
	})
}
