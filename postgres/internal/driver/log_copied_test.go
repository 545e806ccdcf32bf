package driver

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// Whatever room pgx gives, it reads the same.
func TestCopied(t *testing.T) {
	t.Parallel()
	rows := make([]driver.NewRow, 30)
	for i := range rows {
		r := &outmill.Record{Payload: []byte(strings.Repeat("x", i*i*10))}
		rows[i] = driver.NewRow{Record: r, Message: strings.Repeat("m", i), Metadata: strings.Repeat("{", i)}
		rows[i].ID, rows[i].Line = outmill.NewWorkItemID(), driver.Line{Topic: "orders", Part: i % 2}
	}
	all := (&copied{rows: rows}).write(make([]byte, 0, 1<<20))
	require.True(t, bytes.HasPrefix(all, []byte("PGCOPY\n\xff\r\n\x00")))
	require.True(t, bytes.HasSuffix(all, []byte("\xff\xff")))
	for _, room := range []int{1, 7, 19, 20, 500, 600, 1000, 4096, len(all) - 2, len(all) - 1, len(all), len(all) + 1000} {
		read := &copied{rows: rows}
		var got []byte
		into := make([]byte, room)
		for {
			n, err := read.Read(into)
			got = append(got, into[:n]...)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			require.NotZero(t, n, "a read returns something, or the end")
		}
		require.Equal(t, all, got, room)
	}

	read := &copied{rows: rows}
	_, err := io.CopyN(io.Discard, read, 100)
	require.NoError(t, err)
	read.close()
	_, err = read.Read(make([]byte, 100))
	require.ErrorIs(t, err, io.EOF, "nothing of the rows is read behind the call")
}
