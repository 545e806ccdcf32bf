package storekit_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestRowLimits(t *testing.T) {
	t.Parallel()

	t.Run("a record is refused that would make a row larger than the engine takes", func(t *testing.T) {
		t.Parallel()
		rows := storekit.RowLimits{Row: 100, Metadata: 40, PayloadTimes: 2}
		for name, c := range map[string]struct {
			payload, metadata int
			field             string
		}{
			"nothing":                       {},
			"a payload that just fits":      {payload: 47},
			"a payload that does not":       {payload: 48, field: "payload"},
			"one that fits without the map": {payload: 40, metadata: 16, field: "payload"},
			"metadata that just fit":        {metadata: 40},
			"metadata that do not":          {metadata: 41, field: "metadata"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				record := &outmill.Record{Topic: "orders", Payload: make([]byte, c.payload)}
				err := rows.Check(1, record, strings.Repeat("m", c.metadata))
				if c.field == "" {
					require.NoError(t, err)
					return
				}
				var invalid *outmill.InvalidRecordError
				require.ErrorAs(t, err, &invalid)
				require.Equal(t, c.field, invalid.Field)
				require.Equal(t, 1, invalid.Index)
				require.ErrorContains(t, err, "at most")
			})
		}
	})
}
