package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/outmill/outmill"
)

const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// command is one subcommand.
type command struct {
	name string
	// synopsis has the arguments as the help shows them.
	synopsis string
	// summary is one line for the list of commands; help is the text of the command's own help.
	summary, help string
	// prepare declares the command's flags, and returns the action, which runs with the other
	// arguments after the flags are parsed.
	prepare func(flags *flag.FlagSet) action
}

type action func(ctx context.Context, args []string, stdout io.Writer) error

var commands = []command{schema}

// usageError says that the arguments are wrong. The tool then prints the usage.
type usageError string

func (e usageError) Error() string { return string(e) }

// run runs the tool with the arguments, and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		complain(stderr, "%s", overview())
		return exitUsage
	}
	if args[0] == "help" && len(args) > 1 {
		args = []string{args[1], "-h"}
	}
	if slices.Contains([]string{"-h", "-help", "--help", "help"}, args[0]) {
		return printed(fmt.Fprint(stdout, overview()))
	}
	for _, c := range commands {
		if c.name == args[0] {
			return c.run(ctx, args[1:], stdout, stderr)
		}
	}
	complain(stderr, "outmill: there is no command %q\n\n%s", args[0], overview())
	return exitUsage
}

func (c command) run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("outmill "+c.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	act := c.prepare(flags)
	rest, err := parse(flags, args)
	if errors.Is(err, flag.ErrHelp) {
		return printed(fmt.Fprint(stdout, c.usage(flags)))
	}
	if err != nil {
		err = usageError(err.Error())
	} else {
		err = act(ctx, rest, stdout)
	}
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		complain(stderr, "outmill %s: %s\nusage: outmill %s %s\n", c.name, usage, c.name, c.synopsis)
		return exitUsage
	default:
		complain(stderr, "%v\n", err)
		return exitFailed
	}
}

func (c command) usage(flags *flag.FlagSet) string {
	var b strings.Builder
	fmt.Fprintf(&b, "usage: outmill %s %s\n\n%s\n\n%s\n\nflags:\n", c.name, c.synopsis, c.summary, c.help)
	flags.SetOutput(&b)
	flags.PrintDefaults()
	flags.SetOutput(io.Discard)
	fmt.Fprintf(&b, "\nstores: %s\n", strings.Join(providers(), ", "))
	return b.String()
}

// providers returns the names of the stores that the tool can open.
func providers() []string {
	var names []string
	for _, provider := range outmill.Providers() {
		names = append(names, provider.Name)
	}
	slices.Sort(names)
	return names
}

func overview() string {
	var b strings.Builder
	b.WriteString("outmill is the operator's tool for outboxes.\n\nusage: outmill COMMAND …\n\ncommands:\n")
	for _, c := range commands {
		fmt.Fprintf(&b, "  %-10s %s\n", c.name, c.summary)
	}
	b.WriteString("\noutmill COMMAND -h says more. Exit codes: 0 success, 1 failure, 2 wrong usage.\n")
	return b.String()
}

// parse parses flags before and after the other arguments, and returns these.
func parse(flags *flag.FlagSet, args []string) ([]string, error) {
	var rest []string
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		if flags.NArg() == 0 {
			return rest, nil
		}
		rest = append(rest, flags.Arg(0))
		args = flags.Args()[1:]
	}
}

// complain ignores errors, because there is no other place to report them.
func complain(stderr io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(stderr, format, args...)
}

func printed(_ int, err error) int {
	if err != nil {
		return exitFailed
	}
	return exitOK
}
