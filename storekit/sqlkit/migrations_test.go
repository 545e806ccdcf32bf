package sqlkit_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

func files(texts map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, text := range texts {
		fsys["schema/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

func TestMigrations(t *testing.T) {
	t.Parallel()

	t.Run("files become migrations in the order of their versions", func(t *testing.T) {
		t.Parallel()
		migrations, err := sqlkit.LoadMigrations(files(map[string]string{
			"0002_more.sql":  "CREATE INDEX i\n  ON a (x);\n",
			"0001_first.sql": "-- What it is for; and why.\nCREATE TABLE a (x);\n\nINSERT INTO a VALUES (';');\n",
		}), "schema", strings.ToUpper)
		require.NoError(t, err)
		require.Equal(t, []sqlkit.Migration{
			{Version: 1, Statements: []string{"-- WHAT IT IS FOR; AND WHY.\nCREATE TABLE A (X)", "INSERT INTO A VALUES (';')"}},
			{Version: 2, Statements: []string{"CREATE INDEX I\n  ON A (X)"}},
		}, migrations)
	})

	t.Run("the body of a function is one statement", func(t *testing.T) {
		t.Parallel()
		migrations, err := sqlkit.LoadMigrations(files(map[string]string{
			"0001_first.sql": "CREATE FUNCTION f() AS $outmill$\nBEGIN\n  a;\n  b;\nEND\n$outmill$;\n\nCREATE TABLE a (x);\n",
		}), "schema", func(s string) string { return s })
		require.NoError(t, err)
		require.Equal(t, []string{"CREATE FUNCTION f() AS $outmill$\nBEGIN\n  a;\n  b;\nEND\n$outmill$", "CREATE TABLE a (x)"},
			migrations[0].Statements)
	})

	t.Run("files that leave the order open are refused", func(t *testing.T) {
		t.Parallel()
		for name, texts := range map[string]map[string]string{
			"a gap":          {"0001_a.sql": "", "0003_c.sql": ""},
			"no first":       {"0002_b.sql": ""},
			"twice":          {"0001_a.sql": "", "0001_b.sql": ""},
			"a foreign name": {"0001_a.sql": "", "readme.md": ""},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				_, err := sqlkit.LoadMigrations(files(texts), "schema", strings.ToUpper)
				require.ErrorContains(t, err, "want")
			})
		}
		_, err := sqlkit.LoadMigrations(files(nil), "nowhere", strings.ToUpper)
		require.Error(t, err)
	})

	t.Run("a version that no schema has is refused", func(t *testing.T) {
		t.Parallel()
		for version := range 3 {
			require.NoError(t, storekit.CheckSchemaVersion(version, 2))
		}
		require.ErrorIs(t, storekit.CheckSchemaVersion(-1, 2), outmill.ErrInvalidConfig)
		require.ErrorIs(t, storekit.CheckSchemaVersion(3, 2), outmill.ErrSchemaNewer)
	})
}

func TestParts(t *testing.T) {
	t.Parallel()

	t.Run("what is created and not dropped again is a part of the schema", func(t *testing.T) {
		t.Parallel()
		parts, err := sqlkit.Parts(files(map[string]string{
			"0001_first.sql": "-- CREATE TABLE {p:not_this} (x)\nCREATE TABLE {p:a} (x);\nCREATE UNIQUE INDEX {i:a_x} ON {p:a} (x);\n" +
				"CREATE INDEX {i:old} ON {p:a} (x);\nCREATE VIEW {p:seen} AS SELECT 1;\n",
			"0002_more.sql": "DROP INDEX {i:old};\nDROP VIEW {p:seen};\nCREATE VIEW {p:seen} AS SELECT 2;\nALTER TABLE {p:a} ADD y int;\n" +
				"CREATE FUNCTION {p:f}(text) RETURNS int AS $outmill$\nBEGIN\n  CREATE TABLE {p:inner} (x);\nEND\n$outmill$;\n",
		}), "schema")
		require.NoError(t, err)
		require.Equal(t, []sqlkit.Part{{"table", "a"}, {"index", "a_x"}, {"view", "seen"}, {"function", "f"}}, parts)
	})

	t.Run("files that leave the order open are refused", func(t *testing.T) {
		t.Parallel()
		_, err := sqlkit.Parts(files(map[string]string{"first.sql": "CREATE TABLE {p:a} (x);\n"}), "schema")
		require.ErrorContains(t, err, "first.sql")
	})
}
