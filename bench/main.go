// Command bench measures Outmill next to its peers, and next to the bare engines,
// on this machine:
//
//	go run -C bench . forward
//	go run -C bench . -h
//
// One call runs both sides of a comparison in turn, for several rounds. It prints
// the medians, and the spread between the slowest and the fastest round. Machines
// are noisy, so trust the ratios. With -json the last line is a JSON object.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	os.Exit(code)
}

// Exit codes.
const (
	ok     = 0
	failed = 1
	usage  = 2
)

// scenario is one measurement.
type scenario struct {
	name string
	// help is a line for the list; about describes the measurement, and explains each
	// field of the result.
	help, about string
	// n is the default of -n, short the default with -short; 0 if there is none.
	n, short int
	measure  func(ctx context.Context, b *bench) error
}

var scenarios = []scenario{}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 || slices.Contains([]string{"-h", "-help", "--help", "help"}, args[0]) {
		printScenarios(stdout)
		return ok
	}
	i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == args[0] })
	if i < 0 {
		fmt.Fprintf(stderr, "bench: no scenario %q\n\n", args[0])
		printScenarios(stderr)
		return usage
	}
	return runScenario(ctx, scenarios[i], args[1:], stdout, stderr)
}

func printScenarios(out io.Writer) {
	fmt.Fprint(out, "usage: go run -C bench . <scenario> [flags]\n\nscenarios:\n")
	for _, s := range scenarios {
		fmt.Fprintf(out, "  %-10s %s\n", s.name, s.help)
	}
	fmt.Fprint(out, "\n`<scenario> -h` explains one, and its flags.\n")
}

func runScenario(ctx context.Context, s scenario, args []string, stdout, stderr io.Writer) int {
	b := &bench{scenario: s.name, out: stdout, progress: stderr}
	flags := flag.NewFlagSet("bench "+s.name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	b.flags(flags, s)
	flags.Usage = func() {
		fmt.Fprintf(stderr, "%s: %s\n\n%s\n\nflags:\n", s.name, s.help, s.about)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return ok
	} else if err != nil {
		return usage
	}
	if err := b.settle(s, flags); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return usage
	}
	defer b.end()
	if err := s.measure(ctx, b); err != nil {
		fmt.Fprintf(stderr, "bench: %s: %v\n", s.name, err)
		return failed
	}
	if err := b.report(); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return failed
	}
	return ok
}
