package janitor

// Defaults returns the configuration with all defaults.
func Defaults() Config {
	var c Config
	c.setDefaults()
	return c
}
