package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// entry returns an entry, or nil.
func (t *tx) entry(ctx context.Context, lock bool, kind, key string) (*driver.Entry, error) {
	entries, err := t.Entries(ctx, lock, driver.Entry{Kind: kind, Key: key})
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	return &entries[0], nil
}

// putAs writes an entry with v as its Value.
func (t *tx) putAs(ctx context.Context, entry driver.Entry, v any) (err error) {
	if entry.Value, err = asText(v); err != nil {
		return err
	}
	return t.Put(ctx, entry)
}

// valueAs decodes the Value of an entry.
func valueAs[T any](entry driver.Entry) (v T, err error) {
	if err = json.Unmarshal([]byte(entry.Value), &v); err != nil {
		err = fmt.Errorf("the %s %q cannot be read: %w", entry.Kind, entry.Key, storekit.JSONError("decode from JSON", err))
	}
	return v, err
}

func asText(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

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
