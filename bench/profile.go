package main

import (
	"os"
	"runtime/pprof"
)

// profile begins a CPU profile of a side if -cpuprofile is set.
func (b *bench) profile(field string) (end func(), err error) {
	if b.cpuProfile == "" {
		return func() {}, nil
	}
	file, err := os.Create(b.cpuProfile + "." + field)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		_ = file.Close()
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close()
	}, nil
}
