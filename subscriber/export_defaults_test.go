package subscriber

// Defaults is the configuration of a program that sets nothing.
func Defaults() Config {
	var c Config
	c.setDefaults()
	return c
}
