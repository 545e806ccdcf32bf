package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageError says that the arguments are wrong. The tool then exits with exitUsage.
type usageError string

func (e usageError) Error() string { return string(e) }

func usagef(format string, args ...any) error { return usageError(fmt.Sprintf(format, args...)) }

// failure is an error of an action. Every other error comes from cobra, which found the
// arguments wrong.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// exitError ends the tool with a code of its own. It prints err, if there is one.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

// run runs the tool with the arguments, and returns the exit code.
func run(ctx context.Context, args []string, term terminal) int {
	term.secrets = findSecrets(args, os.Environ())
	root := newRoot(term)
	root.SetArgs(args)
	out := &checkedWriter{w: term.out}
	root.SetOut(out)
	root.SetErr(term.err)
	command, err := root.ExecuteContextC(ctx)
	if err == nil && out.err != nil {
		err = failure{fmt.Errorf("outmill: write the output: %w", out.err)}
	}
	var usage usageError
	var failed failure
	var exit exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit) && !errors.As(err, &usage):
		if exit.err != nil {
			fmt.Fprintln(term.err, term.hide(strings.TrimSpace(err.Error())))
		}
		return exit.code
	case errors.As(err, &usage) || !errors.As(err, &failed):
		text := term.hide(err.Error())
		fmt.Fprintf(term.err, "%s: %s\n%s -h shows the usage\n", command.CommandPath(), text, command.CommandPath())
		return exitUsage
	default:
		fmt.Fprintln(term.err, term.hide(failureText(ctx, err)))
		return exitFailed
	}
}

// failureText is an error as the user of a terminal knows it: a signal ended the context.
func failureText(ctx context.Context, err error) string {
	text := strings.TrimSpace(err.Error())
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		text = strings.ReplaceAll(text, context.Canceled.Error(), "it was interrupted")
	}
	return text
}

// checkedWriter remembers the first error, because cobra ignores it when it prints help.
type checkedWriter struct {
	w   io.Writer
	err error
}

func (c *checkedWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if c.err == nil {
		c.err = err
	}
	return n, err
}

func newRoot(term terminal) *cobra.Command {
	root := &cobra.Command{
		Use:   "outmill",
		Short: "The operator's tool for Outmill's outboxes",
		Long: `outmill is the operator's tool for Outmill's outboxes.

Most commands take the URL of a store, for example sqlite:orders.db or
postgres://host/shop. Without a URL they take it from the variable OUTMILL_URL, or that
of a source (see --source), so that the list of processes shows no password.

Exit codes: 0 success, 1 failure, 2 wrong usage.`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("there is no command %q%s: outmill help lists them", args[0], didYouMean(cmd, args[0]))
			}
			return cmd.Help()
		},
	}
	root.SetVersionTemplate("outmill {{.Version}}\n")
	root.AddCommand(
		schemaCommand(), statusCommand(term), listCommand(term), showCommand(), whyCommand(), doctorCommand(),
		deadCommand(term), requeueCommand(term), editCommand(term), skipCommand(term), deleteCommand(term), auditCommand(term),
		groupsCommand(term), publishCommand(term), forwardCommand(term), dashboardCommand(term),
		importCommand(term),
		versionCommand(),
	)
	tenantFlags(root)
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			wantMember(cmd, cmd.Commands())
		}
	}
	return root
}

// action is what a command does with its arguments.
type action func(ctx context.Context, args []string) error

// does makes the command run the action, and marks the action's errors as failures.
func does(cmd *cobra.Command, act action) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := refuseEmpty(cmd); err != nil {
			return err
		}
		if err := act(cmd.Context(), args); err != nil {
			return failure{err}
		}
		return nil
	}
	return cmd
}

// emptyFlags are the flags whose empty value has a meaning.
var emptyFlags = []string{"after", "payload", "reason", "topic-prefix"}

// refuseEmpty refuses a flag that has an empty value. An unset variable of a shell makes one, and an empty
// filter would select everything, an empty name would hide who it was.
func refuseEmpty(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if flag.Value.Type() == "string" && strings.TrimSpace(flag.Value.String()) == "" && !slices.Contains(emptyFlags, flag.Name) {
			err = usagef("--%s is empty: want a value, or leave the flag out", flag.Name)
		}
	})
	return err
}

// didYouMean names the commands that a mistyped one resembles.
func didYouMean(cmd *cobra.Command, typed string) string {
	cmd.SuggestionsMinimumDistance = 2
	if names := cmd.SuggestionsFor(typed); len(names) > 0 {
		return fmt.Sprintf(" (did you mean %s?)", strings.Join(names, " or "))
	}
	return ""
}

// family is a command that only has commands under it.
func family(cmd *cobra.Command, members ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(members...)
	return wantMember(cmd, members)
}

// wantMember makes a command without one of its members wrong usage.
func wantMember(cmd *cobra.Command, members []*cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var names []string
		for _, member := range members {
			names = append(names, member.Name())
		}
		if len(args) > 0 {
			return usagef("there is no command %q%s: want one of %s", args[0], didYouMean(cmd, args[0]), strings.Join(names, ", "))
		}
		return usagef("want one of %s", strings.Join(names, ", "))
	}
	return cmd
}
