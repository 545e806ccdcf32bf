package contracts

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/outmill/outmill"
)

var (
	// ErrInvalidContract says that a contract is invalid. It is an outmill.ErrInvalidConfig,
	// and its text names the contract and the remedy.
	ErrInvalidContract = fmt.Errorf("%w: contract", outmill.ErrInvalidConfig)
	// ErrDuplicateContract says that two contracts have the same name or the same type. It is
	// an outmill.ErrInvalidConfig.
	ErrDuplicateContract = fmt.Errorf("%w: duplicate contract", outmill.ErrInvalidConfig)
	// ErrUnknownContract matches every [UnknownContractError], by errors.Is.
	ErrUnknownContract = errors.New("contracts: unknown contract")
	// ErrInvalidMessage says that a value cannot be published: its Validate method returned an
	// error, it cannot be encoded, or it is nil. Nothing was written. See [MessageError].
	ErrInvalidMessage = errors.New("contracts: invalid message")
	// ErrUnreadableMessage says that a payload does not fit its contract, or that an upcaster
	// refuses it. See [MessageError].
	ErrUnreadableMessage = errors.New("contracts: unreadable message")
)

// UnknownContractError says that a message's contract, or a value's type, is not in the
// registry. For a message that arrives it is permanent (outmill.Permanent).
type UnknownContractError struct {
	// Name is the contract's name, or "" if the message has none.
	Name string
	// Version is the unknown version. It is 0 if the name is unknown, or if the message has no
	// valid version.
	Version int
	// Reason says what is missing, and the remedy.
	Reason string
}

func (e *UnknownContractError) Error() string { return ErrUnknownContract.Error() + ": " + e.Reason }

// Is makes errors.Is(err, ErrUnknownContract) true.
func (e *UnknownContractError) Is(target error) bool { return target == ErrUnknownContract }

// MessageError says that a message was refused, and names its contract. It is an
// ErrInvalidMessage when the message is published, and a permanent ErrUnreadableMessage when
// it is delivered. Its text contains no part of the payload, unless a Validate method, an
// upcaster or a codec of the program puts one into its error.
type MessageError struct {
	Name    string
	Version int
	// Kind is ErrInvalidMessage or ErrUnreadableMessage.
	Kind error
	// Err is the reason.
	Err error
}

func (e *MessageError) Error() string {
	return fmt.Sprintf("%s: %s version %d: %s", e.Kind, e.Name, e.Version, e.Err)
}

// Unwrap returns the reason.
func (e *MessageError) Unwrap() error { return e.Err }

// Is makes errors.Is true for ErrInvalidMessage, or ErrUnreadableMessage.
func (e *MessageError) Is(target error) bool { return target == e.Kind }

// NoContract returns the permanent error for a message without a contract: it does not have
// the metadata that names one. It is for marshalers such as the one of contracts/cloudevents.
func NoContract(metadata string) error {
	return outmill.Permanent(&UnknownContractError{
		Reason: fmt.Sprintf("the message has no metadata %q, which names its contract: publish it with a marshaler of this registry", metadata),
	})
}

// ParseVersion reads the version of a message from the named metadata. The error is
// permanent, and names the contract. It is for marshalers such as the one of
// contracts/cloudevents.
func ParseVersion(contract, metadata, value string) (int, error) {
	version, err := strconv.ParseInt(value, 10, 32)
	if err == nil && version >= 1 {
		return int(version), nil
	}
	return 0, outmill.Permanent(&UnknownContractError{
		Name: contract,
		Reason: fmt.Sprintf("%s has a version that cannot be read: metadata %q is %s, want a number from 1 up",
			quote(contract), metadata, quote(value)),
	})
}

func unknownName(name string) error {
	return &UnknownContractError{Name: name, Reason: quote(name) + " is not registered: give it to contracts.NewRegistry"}
}

func (c *Contract) unknownVersion(version int) error {
	known := make([]string, 0, len(c.upcasters)+1)
	for _, up := range c.upcasters {
		known = append(known, fmt.Sprint(up.from))
	}
	known = append(known, fmt.Sprint(c.version))
	remedy := fmt.Sprintf("add contracts.UpcastFrom(%d, …)", version)
	if version > c.version {
		remedy = "deploy the readers of a new version before its publishers"
	}
	return &UnknownContractError{Name: c.name, Version: version, Reason: fmt.Sprintf(
		"%s has no version %d in this program, which knows %s: %s", quote(c.name), version, strings.Join(known, ", "), remedy)}
}

func unknownType(v any) error {
	name := fmt.Sprintf("%T", v)
	return &UnknownContractError{Reason: fmt.Sprintf("type %s is not registered: give contracts.Of[%s] to contracts.NewRegistry",
		name, strings.TrimPrefix(name, "*"))}
}

// quote quotes a text from outside the program, and shortens it.
func quote(s string) string {
	const limit = 100
	if len(s) > limit {
		end := limit
		for end > 0 && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end] + "…"
	}
	return fmt.Sprintf("%q", s)
}
