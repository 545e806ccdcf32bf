package driver_test

import (
	"context"
	"database/sql"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/sqlservertest"
	sqlserver "github.com/outmill/outmill/sqlserver/internal/driver"
)

// The server finds a plan for each statement (it says error 8622 where a search cannot seek), and no plan reads a whole table or index of
// the store. Without rows the server would rather scan, so it shows what it may do at all.
func TestPlans(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlserver", sqlservertest.Database(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	d := sqlserver.New(db, sqlserver.Config{Name: "plans", Schema: "dbo", Table: "Outbox"})
	require.NoError(t, d.Ensure(t.Context()))
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), "SET SHOWPLAN_XML ON")
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	names, texts := d.Texts()
	for _, name := range names {
		plan := ""
		require.NoError(t, conn.QueryRowContext(context.WithoutCancel(t.Context()), declared(texts[name])+texts[name]).Scan(&plan), name)
		for _, found := range accesses(t, plan) {
			if strings.HasPrefix(found.table, "[Outbox") && found.table != "[OutboxMeta]" {
				require.NotContains(t, found.operator, "Scan", "%s: %+v", name, found)
			}
		}
	}
}

// declared declares the parameters of a statement as go-mssqldb does.
func declared(text string) string {
	kinds := map[string]string{
		"BIGINT": "limit now from until stage hold want size patience at made keep claim due keys locks held leased routes pauses length " +
			"most seconds",
		"VARBINARY(MAX)": "id step payload entry",
	}
	own := regexp.MustCompile(`DECLARE (?:/\* [a-z_ ]+ \*/ )?(@\w+)`).FindAllStringSubmatch(text, -1)
	var list []string
	for _, name := range regexp.MustCompile(`(?:[^@\w])(@[a-z]+)\b`).FindAllStringSubmatch(text, -1) {
		isOwn := slices.ContainsFunc(own, func(found []string) bool { return found[1] == name[1] }) ||
			regexp.MustCompile(`DECLARE [^;]*`+name[1]+` (INT|BIGINT|NVARCHAR)`).MatchString(text)
		if !isOwn && !slices.Contains(list, name[1]) {
			list = append(list, name[1])
		}
	}
	var all strings.Builder
	for _, name := range list {
		kind := "NVARCHAR(MAX)"
		for of, names := range kinds {
			if slices.Contains(strings.Fields(names), name[1:]) {
				kind = of
			}
		}
		if name == "@rows" && strings.Contains(text, "FROM @rows AS n") {
			kind = "[dbo].[OutboxNew]"
		}
		if name == "@join" && strings.Contains(text, "CAST(@join AS BINARY(16))") {
			kind = "VARBINARY(MAX)"
		}
		all.WriteString("DECLARE " + name + " " + kind + ";\n")
	}
	return all.String()
}

// access is the way in which a plan reads a table.
type access struct{ operator, table, index string }

// accesses returns the accesses of a plan.
func accesses(t *testing.T, plan string) (found []access) {
	t.Helper()
	var operators []string
	decoder := xml.NewDecoder(strings.NewReader(plan))
	decoder.CharsetReader = func(_ string, input io.Reader) (io.Reader, error) { return input, nil }
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		switch element := token.(type) {
		case xml.StartElement:
			attribute := func(name string) string {
				for _, a := range element.Attr {
					if a.Name.Local == name {
						return a.Value
					}
				}
				return ""
			}
			switch element.Name.Local {
			case "RelOp":
				operators = append(operators, attribute("PhysicalOp"))
			case "Object":
				if len(operators) > 0 {
					found = append(found, access{operators[len(operators)-1], attribute("Table"), attribute("Index")})
				}
			}
		case xml.EndElement:
			if element.Name.Local == "RelOp" {
				operators = operators[:len(operators)-1]
			}
		}
	}
}

// The declarations are those of the statements' parameters, and of nothing else.
func TestPlans_Declared(t *testing.T) {
	t.Parallel()
	_, texts := named().Texts()
	require.Equal(t, "DECLARE @group NVARCHAR(MAX);\nDECLARE @topic NVARCHAR(MAX);\n", withoutLimit(declared(texts["by_line"])))
	require.Contains(t, declared(texts["insert"]), "DECLARE @rows [dbo].[OutboxNew];")
	require.Contains(t, declared(texts["by_waiter"]), "DECLARE @join VARBINARY(MAX);")
	for _, own := range []string{"@rc", "@found", "@freed", "@resource", "@now"} {
		require.NotContains(t, declared(texts["page"]), own+" ")
	}
}

func withoutLimit(text string) string {
	return strings.ReplaceAll(text, "DECLARE @limit BIGINT;\n", "")
}
