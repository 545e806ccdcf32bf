package outmill

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// WorkerDefaults are settings of subscribers and forwarders that the URL of a store may
// contain. An operator can change them there without a change of the program:
//
//	postgres://host/orders?lease=1m&batch_size=500&max_attempts=20
//
// Config.WithDefaults of the subscriber and of the forwarder uses them for each setting
// that the program leaves at zero. A zero field means that the URL does not contain the
// parameter.
type WorkerDefaults struct {
	// Lease is the parameter lease, a duration above 0, at most 24h.
	Lease time.Duration
	// BatchSize is the parameter batch_size, 1 to 10000.
	BatchSize int
	// MaxAttempts is the parameter max_attempts, 1 or more, or negative for no limit.
	MaxAttempts int
}

const (
	maxLease     = 24 * time.Hour
	maxBatchSize = 10_000
)

// DefaultsOf removes the settings of workers from the URL of a store. It returns them and
// the rest of the URL, whose text it does not change. [Open] passes the rest to the store's
// provider.
//
// The error is an *InvalidURLError that names the parameter.
func DefaultsOf(storeURL string) (defaults WorkerDefaults, rest string, err error) {
	rest, query, found := strings.Cut(storeURL, "?")
	if !found {
		return defaults, storeURL, nil
	}
	seen := map[string]bool{}
	var others []string
	for parameter := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(parameter, "=")
		set, ok := defaults.setter(name)
		if !ok {
			others = append(others, parameter)
			continue
		}
		if value, err = url.QueryUnescape(value); err != nil || seen[name] || !set(value) {
			return WorkerDefaults{}, "", &InvalidURLError{URL: RedactURL(storeURL), Reason: wrongDefault(name, value, seen[name])}
		}
		seen[name] = true
	}
	if len(others) > 0 {
		rest += "?" + strings.Join(others, "&")
	}
	return defaults, rest, nil
}

// setter returns the function that sets the parameter's field. The function reports whether
// the value is valid.
func (d *WorkerDefaults) setter(parameter string) (set func(value string) bool, ok bool) {
	switch parameter {
	case "lease":
		return func(value string) bool {
			lease, err := time.ParseDuration(value)
			d.Lease = lease
			return err == nil && lease > 0 && lease <= maxLease
		}, true
	case "batch_size":
		return func(value string) bool {
			size, err := strconv.Atoi(value)
			d.BatchSize = size
			return err == nil && size >= 1 && size <= maxBatchSize
		}, true
	case "max_attempts":
		return func(value string) bool {
			attempts, err := strconv.Atoi(value)
			d.MaxAttempts = attempts
			return err == nil && attempts != 0
		}, true
	}
	return nil, false
}

func wrongDefault(parameter, value string, again bool) string {
	if again {
		return fmt.Sprintf("has the parameter %s twice: want it once", parameter)
	}
	want := map[string]string{
		"lease":        "a duration such as 30s, above 0, at most 24h",
		"batch_size":   "a number from 1 to 10000",
		"max_attempts": "a number from 1, or a negative one for no limit",
	}
	return fmt.Sprintf("has the parameter %s=%q: want %s", parameter, value, want[parameter])
}
