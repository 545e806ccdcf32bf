package catalog

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// conformance has, for each package that runs the suites of storetest, the levels of test names above a sentence.
var conformance = map[string]string{
	"sqlite":             "^TestConformance(_Joins|_Transactions)?$/.*/.*/",
	"storetest/memstore": "^TestConformance(_Joins|_Transactions)?$/.*/.*/",
	"postgres":           "^TestConformance$/^log$/.*/.*/.*/",
	"mongo":              "^TestConformance$/.*/.*/.*/",
	"tenants":            "^TestConformance$/.*/.*/.*/",
}

// suites are the packages whose sentences the packages of conformance run.
var suites = []string{"storetest", "storetest/joinstest", "storetest/txtest"}

// TestsBearing returns an argument for the flag -run that has the package's tests run whose name contains the text, and no others.
// Sentences of the suites count as tests of the packages that run them. No such test is an error.
func TestsBearing(root, pkg, text string) (string, error) {
	dir := strings.TrimPrefix(pkg, "./")
	own, err := parse(root, dir)
	if err != nil {
		return "", err
	}
	patterns := own.patterns(text)
	if above, ok := conformance[dir]; ok {
		sentence, err := inSuites(root, text)
		if err != nil {
			return "", err
		}
		if sentence {
			patterns = append(patterns, above+quote(text))
		}
	}
	if len(patterns) == 0 {
		return "", fmt.Errorf("no test of %s has %q in its name", pkg, text)
	}
	slices.Sort(patterns)
	return strings.Join(slices.Compact(patterns), "|"), nil
}

// HasTest reports whether a text of the package's tests, or of a suite that others run, bears the number. The package is
// written as docs/spec.md writes it: outmill is the root, storetest all suites.
func HasTest(root, pkg, number string) (bool, error) {
	switch pkg {
	case "storetest":
		return inSuites(root, number)
	case "outmill":
		pkg = "."
	}
	own, err := parse(root, pkg)
	return len(own.patterns(number)) > 0, err
}

// inSuites reports whether a sentence of a suite contains the text.
func inSuites(root, text string) (bool, error) {
	literals := regexp.MustCompile(`"[^"\n]*` + regexp.QuoteMeta(text) + `[^"\n]*"`)
	for _, suite := range suites {
		names, err := filepath.Glob(filepath.Join(root, suite, "*.go"))
		if err != nil {
			return false, err
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			source, err := os.ReadFile(name)
			if err != nil {
				return false, err
			}
			// Most files do not have the text at all, and a search for it is quick.
			if bytes.Contains(source, []byte(text)) && literals.Match(source) {
				return true, nil
			}
		}
	}
	return false, nil
}

// tests are the functions of a package's test files.
type tests map[string]*ast.FuncDecl

// parsed has the tests of each package, because many mutants are for the same ones.
var parsed sync.Map

func parse(root, dir string) (tests, error) {
	at := filepath.Join(root, dir)
	if known, ok := parsed.Load(at); ok {
		return known.(tests), nil
	}
	names, err := filepath.Glob(filepath.Join(at, "*_test.go"))
	if err != nil {
		return nil, err
	}
	found := tests{}
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Body != nil {
				found[f.Name.Name] = f
			}
		}
	}
	parsed.Store(at, found)
	return found, nil
}

// patterns returns an argument of -run for each text of the tests that contains the text.
func (ts tests) patterns(text string) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(ts)) {
		for _, below := range levels(ts[name], func(n ast.Node) (path []string, wanted bool) {
			value, ok := literal(n)
			before, _, found := strings.Cut(value, text)
			return pathOf(before, text), ok && found
		}) {
			for _, above := range ts.above(name, 3) {
				all = append(all, strings.Join(slices.Concat(above, below), "/"))
			}
		}
	}
	return all
}

// pathOf returns the levels of a name up to the text, because a slash in a name begins another level.
func pathOf(before, text string) []string {
	parts := strings.Split(before, "/")
	path := make([]string, 0, len(parts))
	for _, part := range parts[:len(parts)-1] {
		path = append(path, quote(part)+"$")
	}
	return append(path, quote(text))
}

// above returns the levels of names above what the function itself runs: those of the tests that use it.
func (ts tests) above(name string, depth int) [][]string {
	if strings.HasPrefix(name, "Test") {
		return [][]string{{"^" + name + "$"}}
	}
	if depth == 0 {
		return nil
	}
	var all [][]string
	for _, user := range slices.Sorted(maps.Keys(ts)) {
		uses := levels(ts[user], func(n ast.Node) (path []string, wanted bool) {
			ident, ok := n.(*ast.Ident)
			return nil, ok && ident.Name == name && n != ts[user].Name
		})
		for _, below := range uses {
			for _, above := range ts.above(user, depth-1) {
				all = append(all, slices.Concat(above, below))
			}
		}
	}
	return all
}

// levels returns, for each wanted node of the function, the names of the subtests around it, and its own path.
func levels(f *ast.FuncDecl, wanted func(ast.Node) (path []string, wanted bool)) [][]string {
	var found [][]string
	var path []ast.Node
	ast.Inspect(f, func(n ast.Node) bool {
		if n == nil {
			path = path[:len(path)-1]
			return true
		}
		if own, ok := wanted(n); ok {
			found = append(found, append(around(path, n), own...))
		}
		path = append(path, n)
		return true
	})
	return found
}

// around returns the names of the subtests whose function contains the node.
func around(path []ast.Node, n ast.Node) []string {
	var names []string
	for _, node := range path {
		call, ok := node.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 || n.Pos() < call.Args[1].Pos() {
			continue
		}
		if selector, ok := call.Fun.(*ast.SelectorExpr); !ok || selector.Sel.Name != "Run" {
			continue
		}
		if name, ok := literal(call.Args[0]); ok {
			names = append(names, "^"+quote(name)+"$")
		} else {
			names = append(names, ".*")
		}
	}
	return names
}

// quote writes the text as package testing writes names, for a pattern.
func quote(text string) string {
	return regexp.QuoteMeta(strings.ReplaceAll(text, " ", "_"))
}

func literal(n ast.Node) (string, bool) {
	lit, ok := n.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(lit.Value)
	return value, err == nil
}
