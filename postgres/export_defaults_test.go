package postgres

// Defaults returns the configuration of a program that sets nothing.
func Defaults() Config {
	var c Config
	c.setDefaults()
	return c
}
