package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/roles"
)

func TestKnownPauses(t *testing.T) {
	t.Parallel()

	t.Run("the known list is never replaced by an older one", func(t *testing.T) {
		t.Parallel()
		var known knownPauses
		require.Nil(t, known.load())
		newer := roles.NewPauseList(2, nil)
		known.keep(newer)
		known.keep(roles.NewPauseList(1, nil))
		known.keep(roles.NewPauseList(2, nil))
		require.Same(t, newer, known.load())
	})

	t.Run("the known list is replaced by an older one after a restore", func(t *testing.T) {
		t.Parallel()
		var known knownPauses
		newer, older, other := roles.NewPauseList(2, nil), roles.NewPauseList(1, nil), roles.NewPauseList(0, nil)
		known.renew(nil, newer)
		require.Same(t, newer, known.load())
		known.renew(newer, older)
		require.Same(t, older, known.load(), "the call began with the newer list, so the database is older now")
		known.renew(newer, other)
		require.Same(t, older, known.load(), "another call has read the list since")
		known.renew(older, older)
		require.Same(t, older, known.load())
	})
}
