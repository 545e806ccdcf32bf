// Package example is what the small examples have in common: the flag
// -database, Ctrl-C, and a schema of their own.
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

// Program shows something in a database and prints what came of it. It returns
// an error where that is not what it should be.
type Program func(ctx context.Context, db Database, out io.Writer) error

// Main runs the program on the database that the flag -database names, and ends
// the process: with code 0, 1 if the program failed or was interrupted, 2 if the
// flags make no sense.
func Main(program Program) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second Ctrl-C ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(command(ctx, os.Args, os.Stdout, os.Stderr, program))
}

func command(ctx context.Context, args []string, out, errOut io.Writer, program Program) int {
	name := filepath.Base(args[0])
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(errOut)
	url := flags.String("database", "", "URL of a PostgreSQL database, such as postgres://user:password@localhost:5432/postgres; the example leaves nothing in it")
	if err := flags.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if *url == "" || flags.NArg() > 0 {
		fmt.Fprintf(errOut, "%s: want -database postgres://user:password@localhost:5432/postgres and nothing else\n", name)
		return 2
	}
	if err := Run(ctx, *url, out, program); err != nil {
		fmt.Fprintf(errOut, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// Run runs the program on a schema of its own, which it drops afterwards, also
// when ctx has ended.
func Run(ctx context.Context, url string, out io.Writer, program Program) (err error) {
	db, err := newDatabase(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.drop(context.WithoutCancel(ctx))) }()
	err = program(ctx, db, out)
	if cause := ctx.Err(); err != nil && cause != nil {
		return fmt.Errorf("interrupted: %w", cause)
	}
	return err
}
