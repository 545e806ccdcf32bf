package tenants

import "github.com/ThreeDotsLabs/watermill"

// Defaults returns the configuration with all defaults.
func Defaults() Config {
	var c Config
	c.setDefaults(watermill.NopLogger{})
	return c
}
