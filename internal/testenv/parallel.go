package testenv

import (
	"flag"
	"runtime"
	"strconv"
)

// ManyAtATime runs three parallel tests per processor, because tests of stores and brokers
// mostly wait for a server, a deadline, or another process. A -parallel flag on the command
// line overrides it. TestMain calls it.
func ManyAtATime() {
	flag.Parse()
	if !Given("test.parallel") {
		_ = flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0)))
	}
}

// Given reports whether the command line has the flag.
func Given(name string) (given bool) {
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	return given
}
