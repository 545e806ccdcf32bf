package sqlkit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var (
	errLost     = errors.New("the connection is lost")
	errRefused  = errors.New("the commit is refused")
	errDeadlock = errors.New("a deadlock")
)

func judge() sqlkit.Judge {
	is := func(known error) func(error) bool {
		return func(err error) bool { return errors.Is(err, known) }
	}
	return sqlkit.Judge{Lost: is(errLost), MayBeCommitted: is(errLost), Transient: is(errDeadlock)}
}

// A lost connection before the commit has written nothing, so the transaction runs again. After the commit was sent, nobody knows.
func TestJudge(t *testing.T) {
	t.Parallel()
	j := judge()
	run := func(ctx context.Context, work, commit error) (err error, committed bool) {
		err = j.Run(ctx, func() error { return work }, func() error { committed = true; return commit })
		return err, committed
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		ctx                               context.Context
		work, commit, is                  error
		committed, passes, caller, doubts bool
	}{
		"success":                     {ctx: t.Context(), committed: true},
		"its own error":               {ctx: t.Context(), work: errRefused, is: errRefused},
		"a deadlock":                  {ctx: t.Context(), work: errDeadlock, is: errDeadlock, passes: true, caller: true},
		"a busy row":                  {ctx: t.Context(), work: driver.ErrBusy, is: driver.ErrBusy, passes: true, caller: true},
		"a lost connection":           {ctx: t.Context(), work: errLost, is: errLost, passes: true, caller: true},
		"a lost connection, too late": {ctx: ended, work: errLost, is: errLost},
		"the end of the context":      {ctx: ended, is: context.Canceled},
		"a refused commit":            {ctx: t.Context(), commit: errRefused, is: errRefused, committed: true},
		"a deadlock at the commit":    {ctx: t.Context(), commit: errDeadlock, is: errDeadlock, committed: true},
		"a lost commit":               {ctx: t.Context(), commit: errLost, is: errLost, committed: true, doubts: true},
		"another call's lost commit": {
			ctx: t.Context(), work: errors.Join(errDeadlock, storekit.CommitInDoubt(errLost)), is: errDeadlock, passes: true, doubts: true,
		},
	} {
		err, committed := run(c.ctx, c.work, c.commit)
		require.ErrorIs(t, err, c.is, name)
		assert.Equal(t, c.committed, committed, name)
		assert.Equal(t, c.passes, err != nil && j.Passes(err), name)
		assert.Equal(t, c.caller, err != nil && j.PassesForCaller(err), name)
		assert.Equal(t, c.doubts, errors.Is(err, storekit.ErrCommitInDoubt), name)
	}
}
