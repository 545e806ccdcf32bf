package memdriver_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/storetest"
)

// A claim that has lost a row in the middle says of no write that it is the last, because another pass follows.
func TestRace_LostInTheMiddle(t *testing.T) {
	t.Parallel()
	h := newInterleaved(t, storetest.Options{}, 2)
	r := &race{t, h, h.open()}
	ctx := r.Context()
	r.register(ctx)
	y := rec("y1", "y")
	r.append(ctx, rec("x1", "x"), y, rec("z1", "z"))
	found := r.claim(r.at("Apply", 1, func() {
		_, err := r.store.Delete(ctx, y.ID)
		r.ok(err)
	}), a, 10)
	require.Equal(t, []string{"x1", "z1"}, ids(found))
}
