// Package mongoerr reads the errors of MongoDB's driver.
package mongoerr

import (
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Labels by which a server says whether work can be retried: see "Transactions" in MongoDB's specifications of drivers.
const (
	LabelTransient = "TransientTransactionError"
	LabelUnknown   = "UnknownTransactionCommitResult"
	LabelRetryable = "RetryableWriteError"
)

// Codes of MongoDB's errors, from its error_codes.yml.
const (
	CodeWriteConflict     = 112
	CodeNoSuchTransaction = 251
	CodeNamespaceExists   = 48
	CodeMaxTimeExpired    = 50
	CodeUnauthorized      = 13
	CodeIllegalOperation  = 20
	CodeCommandNotFound   = 59
	CodeInvalidOptions    = 72
	// CodeNoChangeStreams is the error of a server that is not a member of a replica set.
	CodeNoChangeStreams = 40573
)

// interruptions are the codes of a server that steps down as the primary, or shuts down, during a command.
var interruptions = []int{10107, 13435, 189, 11600, 11602, 91}

// HasCode reports whether the server has said err, with this code.
func HasCode(err error, code int) bool { return slices.Contains(Codes(err), code) }

// Codes returns the codes of an error of the server, and nil for others.
//
// The driver has its own type for what a server says of writes, and its methods turn it into mongo.ServerError. But they return it as
// it is from a retry that found no server, and from commands other than inserts, updates and deletes.
func Codes(err error) []int {
	var codes []int
	if e := mongo.ServerError(nil); errors.As(err, &e) {
		codes = e.ErrorCodes()
	}
	raw := driver.WriteCommandError{}
	if !errors.As(err, &raw) {
		return codes
	}
	for _, e := range raw.WriteErrors {
		codes = append(codes, int(e.Code))
	}
	if raw.WriteConcernError != nil {
		codes = append(codes, int(raw.WriteConcernError.Code))
	}
	return codes
}

// HasLabel reports whether err has the label.
func HasLabel(err error, label string) bool {
	var e mongo.LabeledError
	return errors.As(err, &e) && e.HasErrorLabel(label)
}

// IsTimeout reports whether the server or the driver had too little time. The driver does not say so of the write concern of a bulk
// write.
func IsTimeout(err error) bool { return mongo.IsTimeout(err) || HasCode(err, CodeMaxTimeExpired) }

// OutOfTime reports whether the server has ended a command, or the driver has not sent it, because of the deadline of its context. The
// deadline itself may not have passed: both count on the way of the answer.
func OutOfTime(err error) bool {
	return HasCode(err, CodeMaxTimeExpired) || errors.Is(err, driver.ErrDeadlineWouldBeExceeded)
}

// Interrupted reports that the primary, or the connection to it, was lost during a command: the server may have carried out all, a part
// or none of it. It is false for the commit of a transaction: the result of such a commit is unknown as a whole.
func Interrupted(err error) bool {
	return !HasLabel(err, LabelUnknown) && !errors.Is(err, storekit.ErrCommitInDoubt) &&
		(mongo.IsNetworkError(err) || stopped(err) || unsent(err))
}

// Transient reports whether the whole transaction may be run again.
func Transient(err error) bool { return HasLabel(err, LabelTransient) || unsent(err) }

// unsent reports that the driver has sent nothing, because another command had lost the connections to the server. The driver gives such
// an error its label only if the command did not have to wait for a connection.
func unsent(err error) bool {
	var e driver.RetryablePoolError
	return errors.As(err, &e) && e.Retryable()
}

// stopped reports whether a server says that it ceases to be the primary.
func stopped(err error) bool {
	return slices.ContainsFunc(Codes(err), func(code int) bool { return slices.Contains(interruptions, code) })
}

// Unconfirmed reports that the server has carried out a write, and cannot say that enough others have it.
func Unconfirmed(err error) bool {
	var one mongo.WriteException
	var several mongo.BulkWriteException
	var raw driver.WriteCommandError
	return errors.As(err, &one) && one.WriteConcernError != nil || errors.As(err, &several) && several.WriteConcernError != nil ||
		errors.As(err, &raw) && raw.WriteConcernError != nil
}

// CommitUnknown reports whether the commit that has failed with err can be asked for again, to learn its result. The driver marks such
// errors with a label, but for those of a first try after which it found no server, and those of a server that it cannot reach.
func CommitUnknown(err error) bool {
	return HasLabel(err, LabelUnknown) || unreached(err) ||
		!HasLabel(err, LabelTransient) && (HasLabel(err, LabelRetryable) || Unconfirmed(err) || stopped(err))
}

// unreached reports that the driver has no server, or no connection to it.
func unreached(err error) bool {
	return errors.As(err, new(topology.ServerSelectionError)) || errors.As(err, new(topology.ConnectionError)) || unsent(err)
}

// MayBeCommitted reports whether a COMMIT with this error may have taken effect: the server has neither refused it nor confirmed it.
func MayBeCommitted(err error) bool {
	var refused mongo.ServerError
	switch {
	case CommitUnknown(err), mongo.IsNetworkError(err), IsTimeout(err):
		return true
	case errors.Is(err, outmill.ErrInvalidTx):
		return false
	}
	return !errors.As(err, &refused)
}
