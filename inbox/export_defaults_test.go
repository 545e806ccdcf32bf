package inbox

// Defaults returns the configuration with all defaults.
func Defaults() Config {
	return Config{}.withDefaults(0)
}
