package mongoerr_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/storekit"
)

const shutdownInProgress = 91

// raw is an error of the driver's own type for writes, which a retry that finds no server returns.
func raw(code int64, labels ...string) error {
	return driver.WriteCommandError{WriteConcernError: &driver.WriteConcernError{Code: code}, Labels: labels}
}

// unsent is an error like that of the driver, whose type is not exported.
type unsent struct{}

func (unsent) Error() string   { return "the pool was cleared" }
func (unsent) Retryable() bool { return true }

func said(code int32, labels ...string) error { return mongo.CommandError{Code: code, Labels: labels} }

func TestErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err                                                           error
		codes                                                         []int
		interrupted, transient, unconfirmed, commitUnknown, committed bool
	}{
		"a write concern as the driver has it": {
			err: raw(shutdownInProgress), codes: []int{shutdownInProgress},
			interrupted: true, unconfirmed: true, commitUnknown: true, committed: true,
		},
		"a write concern that is not met": {
			err: raw(64), codes: []int{64}, unconfirmed: true, commitUnknown: true, committed: true,
		},
		"a write concern of one write": {
			err:   mongo.WriteException{WriteConcernError: &mongo.WriteConcernError{Code: shutdownInProgress}},
			codes: []int{shutdownInProgress}, interrupted: true, unconfirmed: true, commitUnknown: true, committed: true,
		},
		"a write as the driver has it": {
			err: driver.WriteCommandError{WriteErrors: driver.WriteErrors{{Code: 11000}}}, codes: []int{11000}, committed: true,
		},
		"a server that shuts down": {
			err: said(shutdownInProgress), codes: []int{shutdownInProgress}, interrupted: true, commitUnknown: true, committed: true,
		},
		"a command that the server says to repeat": {
			err: said(1, mongoerr.LabelRetryable), codes: []int{1}, commitUnknown: true, committed: true,
		},
		"a commit that is unknown": {
			err: said(1, mongoerr.LabelUnknown), codes: []int{1}, commitUnknown: true, committed: true,
		},
		"a commit that is unknown, as it shut down": {
			err: raw(91, mongoerr.LabelUnknown), codes: []int{91}, unconfirmed: true, commitUnknown: true, committed: true,
		},
		"a statement that says to begin again": {
			err: said(shutdownInProgress, mongoerr.LabelTransient), codes: []int{shutdownInProgress}, interrupted: true, transient: true,
		},
		"a lost connection": {err: said(0, "NetworkError"), codes: []int{0}, interrupted: true, committed: true},
		"a commit in doubt": {
			err: storekit.CommitInDoubt(raw(91)), codes: []int{91}, unconfirmed: true, commitUnknown: true, committed: true,
		},
		"too little time": {err: said(mongoerr.CodeMaxTimeExpired), codes: []int{mongoerr.CodeMaxTimeExpired}, committed: true},
		"no server": {
			err: topology.ServerSelectionError{Wrapped: errors.New("none")}, commitUnknown: true, committed: true,
		},
		"no connection": {
			err: topology.ConnectionError{Wrapped: errors.New("refused")}, commitUnknown: true, committed: true,
		},
		"a connection that another command has lost": {err: unsent{}, transient: true, interrupted: true, commitUnknown: true, committed: true},
		"a refusal":                        {err: said(mongoerr.CodeNoSuchTransaction), codes: []int{mongoerr.CodeNoSuchTransaction}},
		"a transaction that had ended":     {err: fmt.Errorf("%w", outmill.ErrInvalidTx)},
		"a context that ended":             {err: context.DeadlineExceeded, committed: true},
		"an error that nobody knows about": {err: errors.New("strange"), committed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := fmt.Errorf("outmill/mongo: a call: %w", c.err)
			require.Equal(t, c.codes, mongoerr.Codes(err))
			for _, code := range c.codes {
				require.True(t, mongoerr.HasCode(err, code))
			}
			require.False(t, mongoerr.HasCode(err, 12345))
			require.Equal(t, c.interrupted, mongoerr.Interrupted(err), "interrupted")
			require.Equal(t, c.transient, mongoerr.Transient(err), "transient")
			require.Equal(t, c.unconfirmed, mongoerr.Unconfirmed(err), "unconfirmed")
			require.Equal(t, c.commitUnknown, mongoerr.CommitUnknown(err), "commit unknown")
			require.Equal(t, c.committed, mongoerr.MayBeCommitted(err), "may be committed")
		})
	}
	require.True(t, mongoerr.HasLabel(fmt.Errorf("%w", raw(1, "Some")), "Some"))
	require.False(t, mongoerr.HasLabel(raw(1), "Some"))
}
