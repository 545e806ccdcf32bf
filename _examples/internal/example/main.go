// Package example has the common parts of the small examples: the flag -database, Ctrl-C, a place
// of their own in the database, and the sales that most of them make.
package example

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// Program shows something in a place and prints the result. It returns an error if the result is
// wrong.
type Program[P any] func(ctx context.Context, place P, out io.Writer) error

// Engine makes places of the kind P.
type Engine[P any] struct {
	// Sample is a URL, for the help.
	Sample string
	// Default is the URL if the flag -database is missing. If it is empty, the flag is required.
	Default string
	// Open makes a place that no other run has, in the database of the URL. leave
	// removes the place again; it is called once, even if the program has failed.
	Open func(ctx context.Context, url string) (place P, leave func(context.Context) error, err error)
}

// Main runs the program on the database that the flag -database names, and ends
// the process: with code 0, 1 if the program failed or was interrupted, 2 if the
// flags are invalid.
func Main[P any](engine Engine[P], program Program[P]) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second Ctrl-C ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(command(ctx, os.Args, os.Stdout, os.Stderr, engine, program))
}

func command[P any](ctx context.Context, args []string, out, errOut io.Writer, engine Engine[P], program Program[P]) int {
	name := filepath.Base(args[0])
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(errOut)
	url := flags.String("database", engine.Default, "URL of a database, such as "+engine.Sample+"; the example leaves nothing in it")
	if err := flags.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if *url == "" || flags.NArg() > 0 {
		fmt.Fprintf(errOut, "%s: want -database %s and nothing else\n", name, engine.Sample)
		return 2
	}
	if err := Run(ctx, *url, out, engine, program); err != nil {
		fmt.Fprintf(errOut, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// Run runs the program in a place of its own, and removes the place afterwards, even if ctx has
// ended.
func Run[P any](ctx context.Context, url string, out io.Writer, engine Engine[P], program Program[P]) (err error) {
	place, leave, err := engine.Open(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leaveInTime(ctx, leave)) }()
	err = program(ctx, place, out)
	if cause := ctx.Err(); err != nil && cause != nil {
		return fmt.Errorf("interrupted: %w", cause)
	}
	return err
}

func leaveInTime(ctx context.Context, leave func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	return leave(ctx)
}
