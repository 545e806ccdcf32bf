package sqlkit_test

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/storekit/sqlkit"
)

// A file of statements begins with a comment about all of them, and each statement has one of its own.
func TestNamedStatements(t *testing.T) {
	t.Parallel()
	const text = "-- About the file. The line -- name: x is not at the beginning.\n\n-- name: one\n-- What it does.\nSELECT 1\n\tFROM a\n\n" +
		"-- name: two\nDELETE FROM b\n"
	files := fstest.MapFS{
		"s/a.sql": &fstest.MapFile{Data: []byte(text)}, "s/b.sql": &fstest.MapFile{Data: []byte("-- name: three\nSELECT 3\n")},
		"s/c.txt": &fstest.MapFile{Data: []byte("-- name: no\nSELECT 4\n")},
	}
	found, err := sqlkit.NamedStatements(files, "s/*.sql")
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"one": "SELECT /* outmill one */ 1\n\tFROM a", "two": "DELETE /* outmill two */ FROM b", "three": "SELECT /* outmill three */ 3",
	}, found)

	files["s/d.sql"] = &fstest.MapFile{Data: []byte("-- name: two\nSELECT 2\n")}
	_, err = sqlkit.NamedStatements(files, "s/*.sql")
	require.ErrorContains(t, err, "s/d.sql: there are two statements two")
}
