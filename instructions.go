package outmill

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Instruction names what a setter tells the publish of a message. It has a type of its own
// because metadata of that name alone is data, and instructs nothing.
//
// A setter keeps an instruction in the metadata, so that it survives SetContext, Copy,
// middlewares and decorators, and signs it with a key that this process makes at random.
// Metadata that comes from outside cannot have such a signature, so nobody who sends a message to
// this program can postpone, expire or deduplicate what the program publishes, or count as a step
// of a join. A publisher of Outmill removes instructions and appends everything else as it is.
//
// The signature covers the name, the value and the UUID of the message. Set the UUID before the
// setters: a publish refuses an instruction that was set for another UUID. Another process, such
// as this one after a restart, takes the instruction for data.
type Instruction string

// The instructions, with the setter of each.
const (
	InstructionDueAt      Instruction = "outmill_due_at"       // SetDueAt
	InstructionDelay      Instruction = "outmill_delay"        // SetDelay
	InstructionExpiresAt  Instruction = "outmill_expires_at"   // SetExpiresAt
	InstructionTimeToLive Instruction = "outmill_time_to_live" // SetTimeToLive
	InstructionDedupKey   Instruction = "outmill_dedup_key"    // SetDedupKey
	InstructionJoins      Instruction = "outmill_joins"        // SetJoins
	InstructionWaitsFor   Instruction = "outmill_waits_for"    // SetWaitsFor
)

var instructions = [...]Instruction{
	InstructionDueAt, InstructionDelay, InstructionExpiresAt, InstructionTimeToLive, InstructionDedupKey, InstructionJoins,
	InstructionWaitsFor,
}

// InstructionsOf returns what the setters of this process have told the publish of the message,
// as texts: times in the form of RFC 3339, durations as Go writes them, and ids of joins with
// commas between them. The map belongs to the caller; it is nil if there are none. It is for
// publishers: storekit.RecordOf calls it.
//
// The error is an ErrInvalidRecord for each instruction that was set while the message had
// another UUID; the map has these instructions too.
func InstructionsOf(msg *message.Message) (map[Instruction]string, error) {
	if len(msg.Metadata) == 0 {
		return nil, nil
	}
	var told map[Instruction]string
	var errs []error
	for _, name := range instructions {
		value, uuid, ok := unsigned(name, msg.Metadata[string(name)])
		if !ok {
			continue
		}
		if told == nil {
			told = make(map[Instruction]string, 1)
		}
		told[name] = value
		if uuid != msg.UUID {
			errs = append(errs, &InvalidRecordError{Index: -1, Field: fmt.Sprintf("metadata %q", string(name)),
				Reason: fmt.Sprintf("was set while the message had the UUID %.60q, and the UUID is %.60q now: set the UUID first, "+
					"or call the setter again; in a message that copies the metadata of another one, delete the entry", uuid, msg.UUID)})
		}
	}
	return told, errors.Join(errs...)
}

func instruct(msg *message.Message, name Instruction, value string) {
	set(msg, string(name), signed(name, value, msg.UUID))
}

// signatureMark stands between the value and the signature. The signature is the code and the
// UUID, in base64, which has no character of the mark but letters. So the last mark is ours.
const signatureMark = " outmill:"

// codeSize is the size of the code in bytes: half of SHA-256, which nobody can guess.
const codeSize = sha256.Size / 2

var signingKey = sync.OnceValue(func() []byte {
	key := make([]byte, sha256.Size)
	// It never fails: it ends the program instead.
	_, _ = rand.Read(key)
	return key
})

func signed(name Instruction, value, uuid string) string {
	signature := append(codeOf(name, value, uuid), uuid...)
	return value + signatureMark + base64.RawURLEncoding.EncodeToString(signature)
}

// unsigned returns the value and the UUID of a text that this process has signed for the name.
func unsigned(name Instruction, text string) (value, uuid string, ok bool) {
	at := strings.LastIndex(text, signatureMark)
	if at < 0 {
		return "", "", false
	}
	signature, err := base64.RawURLEncoding.DecodeString(text[at+len(signatureMark):])
	if err != nil || len(signature) < codeSize {
		return "", "", false
	}
	value, uuid = text[:at], string(signature[codeSize:])
	return value, uuid, hmac.Equal(signature[:codeSize], codeOf(name, value, uuid))
}

func codeOf(name Instruction, value, uuid string) []byte {
	code := hmac.New(sha256.New, signingKey())
	// The length tells where the value ends. No name has a NUL byte.
	_, _ = code.Write([]byte(string(name) + "\x00" + strconv.Itoa(len(value)) + "\x00" + value + uuid))
	return code.Sum(nil)[:codeSize]
}
