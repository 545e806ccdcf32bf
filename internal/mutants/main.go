// Command mutants checks the tests of the promises in docs/spec.md and of the defaults in docs/configuration.md: it breaks each
// of them by one small change of the code, and the tests that bear the promise's number must fail.
//
//	go run ./internal/mutants -row OBX-001      one promise
//	go run ./internal/mutants -n 10 -seed 7     ten that the seed chooses
//	go run ./internal/mutants -list             all, without running them
//	go run ./internal/mutants -from OBX-080     the rest of a run that was cut short
//
// The changes are in internal/mutants/catalog/rows. The checkout is never written: the compiler gets the changed file by
// -overlay. So it may have changes of its own, and several runs may go on at a time. Tests take their engines from the
// environment, as with go test; a test that is skipped for the lack of one is an error here.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/outmill/outmill/internal/checkout"
	"github.com/outmill/outmill/internal/mutants/catalog"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(stderr)
	n := flags.Int("n", 0, "number of mutants that the seed chooses; 0 takes all")
	seed := flags.Uint64("seed", 0, "seed of the choice; 0 takes a new one, and prints it")
	row := flags.String("row", "", "beginning of the keys to run, such as OBX-001 or \"default sqlite.\"")
	from := flags.String("from", "", "key of the first mutant; those before it are left out")
	list := flags.Bool("list", false, "print the mutants instead of running them")
	verbose := flags.Bool("v", false, "print what the tests of a mutant say that they do not notice")
	if err := flags.Parse(args); err != nil {
		return err
	}
	all, err := catalog.Load()
	if err != nil {
		return err
	}
	chosen, err := choose(all.Mutants, *row, *from)
	if err != nil {
		return err
	}
	if *n > 0 && *n < len(chosen) {
		if *seed == 0 {
			*seed = uint64(time.Now().UnixNano()) % 1_000_000
		}
		chosen = draw(chosen, *n, *seed)
		fmt.Fprintf(stdout, "%d of %d mutants; the same again: go run ./internal/mutants -n %d -seed %d\n", *n, len(all.Mutants), *n, *seed)
	}
	if *list {
		for _, m := range chosen {
			fmt.Fprintf(stdout, "%s: %s (%s, tests of %s)\n", m.Key, m.Words, m.File, strings.Join(m.Packages, " "))
		}
		return nil
	}
	return runAll(ctx, chosen, stdout, *verbose)
}

func choose(all []*catalog.Mutant, row, from string) ([]*catalog.Mutant, error) {
	if from != "" {
		first := slices.IndexFunc(all, func(m *catalog.Mutant) bool { return strings.HasPrefix(m.Key, from) })
		if first < 0 {
			return nil, fmt.Errorf("no mutant has a key that begins with %q: -list prints the keys", from)
		}
		all = all[first:]
	}
	var chosen []*catalog.Mutant
	for _, m := range all {
		if strings.HasPrefix(m.Key, row) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no mutant has a key that begins with %q: -list prints the keys", row)
	}
	return chosen, nil
}

// draw chooses n mutants, in the order of the catalog.
func draw(all []*catalog.Mutant, n int, seed uint64) []*catalog.Mutant {
	order := rand.New(rand.NewPCG(seed, 0)).Perm(len(all))[:n]
	slices.Sort(order)
	chosen := make([]*catalog.Mutant, n)
	for i, at := range order {
		chosen[i] = all[at]
	}
	return chosen
}

func runAll(ctx context.Context, chosen []*catalog.Mutant, stdout io.Writer, verbose bool) error {
	root, err := checkout.Dir(ctx)
	if err != nil {
		return err
	}
	r, err := newRunner(root)
	if err != nil {
		return err
	}
	defer r.close()
	failed := 0
	for _, m := range chosen {
		begin := time.Now()
		by, err := r.try(ctx, m)
		if ctx.Err() != nil {
			return fmt.Errorf("stopped: go on with -from %q", m.Key)
		}
		took := time.Since(begin).Round(time.Second)
		if err == nil {
			fmt.Fprintf(stdout, "killed: %s: %s (%s) by %s [%s]\n", m.Key, m.Words, m.File, by, took)
			continue
		}
		failed++
		fmt.Fprintf(stdout, "ERROR: %v [%s]\n", err, took)
		var survived *survivedError
		if verbose && errors.As(err, &survived) {
			fmt.Fprintln(stdout, survived.output)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d mutants were not killed by the tests of their promise", failed, len(chosen))
	}
	fmt.Fprintf(stdout, "%d mutants, 0 survived\n", len(chosen))
	return nil
}
