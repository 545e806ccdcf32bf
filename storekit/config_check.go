package storekit

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/outmill/outmill"
)

// InvalidConfig makes an outmill.ErrInvalidConfig of a text, which names the setting, its
// value and the valid values.
func InvalidConfig(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{outmill.ErrInvalidConfig}, args...)...)
}

// ConfigCheck collects the errors of a store's Config, for its Validate. Use it from one
// goroutine at a time.
type ConfigCheck struct {
	name string
	errs []error
}

// CheckConfig begins the check of a Config. name is that of its package and type, such as
// sqlite.Config.
func CheckConfig(name string) *ConfigCheck { return &ConfigCheck{name: name} }

// Err returns all refusals, joined, or nil. Each error is an outmill.ErrInvalidConfig.
func (c *ConfigCheck) Err() error { return errors.Join(c.errs...) }

// Refuse refuses a setting if bad is true. The text begins with the field, and names the
// value and the valid values.
func (c *ConfigCheck) Refuse(bad bool, format string, args ...any) {
	if bad {
		c.errs = append(c.errs, InvalidConfig(c.name+"."+format, args...))
	}
}

// Duration refuses a duration below 0. zero is the meaning of 0, if it is not 0.
func (c *ConfigCheck) Duration(field string, value time.Duration, zero string) {
	if zero != "" {
		zero = " (" + zero + ")"
	}
	c.Refuse(value < 0, "%s is %s: want 0%s or more", field, value, zero)
}

// MaxPayload refuses a MaxPayload below 0 and above most. zero is the meaning of 0.
func (c *ConfigCheck) MaxPayload(value, most int, zero string) {
	c.Refuse(value < 0 || value > most, "MaxPayload is %d: want 0 (%s) to %d", value, zero, most)
}

// AppendLogLevel refuses an AppendLogLevel above slog.LevelInfo; nil is the default.
func (c *ConfigCheck) AppendLogLevel(level slog.Leveler) {
	c.Refuse(level != nil && level.Level() > slog.LevelInfo,
		"AppendLogLevel is %s: want slog.LevelInfo, slog.LevelDebug, or less for trace", level)
}

// FairTopics refuses a pattern that is empty or longer than two topics.
func (c *ConfigCheck) FairTopics(patterns []string) {
	for _, pattern := range patterns {
		err := CheckTopics(outmill.Topics{Include: []string{pattern}})
		c.Refuse(err != nil, "FairTopics has %q: want names or patterns of topics, as outmill.Topics.Include takes them: %v", pattern, err)
	}
}
