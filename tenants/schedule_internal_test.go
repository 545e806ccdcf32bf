package tenants

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func TestReader(t *testing.T) {
	t.Parallel()

	t.Run("a member that a claim asks once more, while an answer to another one is kept, is asked by later claims", func(t *testing.T) {
		t.Parallel()
		for answered, asking := range map[bool]int{true: 0, false: 1} {
			l := &look{member: &member{tenant: Tenant{Key: "a"}}, asking: asking, index: -1}
			r := &reader{looks: map[string]*look{"a": l}, late: map[*look]*question{l: {kept: answered}}}
			r.place(l, false)
			claim := &catch{set: &Set{}, ctx: t.Context(), reader: r}
			r.again(l)
			require.Nil(t, claim.begin(l, outmill.ClaimRequest{}, 0, nil))
			require.Equal(t, asking, l.asking)
			if !answered {
				r.asked(l, 1, nil, 0, 0)
			}
			require.Equal(t, []*look{l}, []*look(r.ready))
		}
	})
}
