//go:build !outmill_next_open

package next_test

const whole = false
