package shop_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/_examples/internal/shop"
)

func Test_a_count_notices_what_goes_wrong(t *testing.T) {
	t.Parallel()
	first, second := []shop.Order{{ID: 0}}, []shop.Order{{ID: 1}}
	payload := []byte(`{"id":0}`)
	for name, c := range map[string]struct {
		happens func(*shop.Count)
		kept    int
		want    string
	}{
		"nothing is wrong":             {func(*shop.Count) {}, 1, ""},
		"one is handled twice":         {func(c *shop.Count) { c.Handled(payload) }, 1, ""},
		"one is lost":                  {func(c *shop.Count) { c.Committed(second) }, 2, "lost"},
		"what was rolled back is seen": {func(c *shop.Count) { c.RolledBack(second); c.Forwarded([]byte(`{"id":1}`)) }, 1, "should not exist"},
		"something else is seen":       {func(c *shop.Count) { c.Forwarded([]byte(`nonsense`)) }, 1, "should not exist"},
		"the order is not kept":        {func(*shop.Count) {}, 0, "in the database"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count := shop.NewCount()
			count.Committed(first)
			count.Handled(payload)
			count.Forwarded(payload)
			c.happens(count)
			var out bytes.Buffer
			err := count.Report(&out, c.kept)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}
