package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// joined is the key of an entry that has two parts. It is unambiguous whatever the parts contain, and the
// joined keys of one first part have a common prefix: joined(first, "").
func joined(first, rest string) string { return strconv.Itoa(len(first)) + ":" + first + rest }

// parts are those of joined.
func parts(key string) (first, rest string) {
	digits, both, _ := strings.Cut(key, ":")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 || n > len(both) {
		return "", key
	}
	return both[:n], both[n:]
}

// hashed is a key for parts that are longer than an index takes.
func hashed(parts ...string) string {
	hash := sha256.New()
	for _, part := range parts {
		hash.Write([]byte(joined(part, "")))
	}
	return hex.EncodeToString(hash.Sum(nil))
}
