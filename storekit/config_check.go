package storekit

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/outmill/outmill"
)

// InvalidConfig makes an outmill.ErrInvalidConfig of a text, which names the setting, its
// value and what is wanted.
func InvalidConfig(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{outmill.ErrInvalidConfig}, args...)...)
}

// ConfigCheck collects what is wrong with the Config of a store, for its Validate. One
// goroutine at a time uses it.
type ConfigCheck struct {
	name string
	errs []error
}

// CheckConfig begins the check of a Config, whose name is that of its package and type,
// such as sqlite.Config.
func CheckConfig(name string) *ConfigCheck { return &ConfigCheck{name: name} }

// Err returns all that was refused, joined, nil for nothing. Each error is an
// outmill.ErrInvalidConfig.
func (c *ConfigCheck) Err() error { return errors.Join(c.errs...) }

// Refuse refuses a setting if it is bad. The text begins with the field, and says the
// value and what is wanted.
func (c *ConfigCheck) Refuse(bad bool, format string, args ...any) {
	if bad {
		c.errs = append(c.errs, InvalidConfig(c.name+"."+format, args...))
	}
}

// Duration refuses a duration below 0. zero says what 0 stands for, where it is not 0.
func (c *ConfigCheck) Duration(field string, value time.Duration, zero string) {
	if zero != "" {
		zero = " (" + zero + ")"
	}
	c.Refuse(value < 0, "%s is %s: want 0%s or more", field, value, zero)
}

// MaxPayload refuses a MaxPayload below 0 and above most. zero says what 0 stands for.
func (c *ConfigCheck) MaxPayload(value, most int, zero string) {
	c.Refuse(value < 0 || value > most, "MaxPayload is %d: want 0 (%s) to %d", value, zero, most)
}

// AppendLogLevel refuses an AppendLogLevel above slog.LevelInfo.
func (c *ConfigCheck) AppendLogLevel(level slog.Level) {
	c.Refuse(level > slog.LevelInfo, "AppendLogLevel is %s: want slog.LevelInfo, slog.LevelDebug, or less for trace", level)
}
