package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"slices"
	"strings"
)

// pausing is the package whose At the changed files call.
const pausing = "github.com/outmill/outmill/internal/stalls/stall"

// insertion is text that comes in front of a position of a file.
type insertion struct {
	at   int
	text string
}

// withPauses returns the source with a call in front of each statement that calls, sends, receives or returns, or "" if it has none. No
// line moves.
func withPauses(name string, source []byte) (string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	var found []insertion
	ast.Inspect(file, func(n ast.Node) bool {
		for _, s := range statementsOf(n) {
			if mayWait(s) {
				at := files.Position(s.Pos())
				found = append(found, insertion{at.Offset, fmt.Sprintf("stall_.At(%d); ", placeOf(name, at.Offset))})
			}
		}
		return true
	})
	if len(found) == 0 {
		return "", nil
	}
	found = append(found, insertion{files.Position(file.Name.End()).Offset, fmt.Sprintf("; import stall_ %q", pausing)})
	slices.SortFunc(found, func(a, b insertion) int { return a.at - b.at })
	var changed strings.Builder
	last := 0
	for _, f := range found {
		changed.Write(source[last:f.at])
		changed.WriteString(f.text)
		last = f.at
	}
	changed.Write(source[last:])
	return changed.String(), nil
}

// placeOf is the number of a place. Those of one file stay as long as the file does.
func placeOf(name string, offset int) uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, name, ":", offset)
	return h.Sum32()
}

// statementsOf returns the statements of a list, but not the cases of a switch or a select.
func statementsOf(n ast.Node) []ast.Stmt {
	switch n := n.(type) {
	case *ast.BlockStmt:
		return n.List
	case *ast.CaseClause:
		return n.Body
	case *ast.CommClause:
		return n.Body
	}
	return nil
}

// mayWait reports whether another goroutine can see where this one stands in front of the statement.
func mayWait(s ast.Stmt) (waits bool) {
	switch s.(type) {
	case *ast.CaseClause, *ast.CommClause, *ast.DeclStmt:
		return false
	}
	ast.Inspect(s, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr, *ast.SendStmt, *ast.SelectStmt, *ast.ReturnStmt:
			waits = true
		case *ast.UnaryExpr:
			waits = waits || n.Op == token.ARROW
		}
		return !waits
	})
	return waits
}
