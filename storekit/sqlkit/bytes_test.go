package sqlkit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/storekit/sqlkit"
)

func TestBytes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from any
		want []byte
	}{
		"NULL is nil":                                 {nil, nil},
		"an empty value is empty":                     {[]byte{}, []byte{}},
		"an empty value that a driver returns as nil": {[]byte(nil), []byte{}},
		"a text is its bytes, also where it is empty": {"", []byte{}},
		"bytes come as they are":                      {[]byte("a\x00b"), []byte("a\x00b")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := []byte("before")
			require.NoError(t, sqlkit.Bytes(&got).Scan(c.from))
			require.Equal(t, c.want, got)
		})
	}

	t.Run("the bytes are the caller's own", func(t *testing.T) {
		t.Parallel()
		from, got := []byte("abc"), []byte(nil)
		require.NoError(t, sqlkit.Bytes(&got).Scan(from))
		from[0] = 'x'
		require.Equal(t, "abc", string(got))
	})

	t.Run("another type is an error that names it", func(t *testing.T) {
		t.Parallel()
		var got []byte
		require.ErrorContains(t, sqlkit.Bytes(&got).Scan(1.5), "float64")
	})
}
