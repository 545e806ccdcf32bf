package main

import (
	"context"
	"fmt"
	"os"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// scope has the flags that say what a pause stops.
type scope struct{ roles.PauseScope }

func (s *scope) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.Group, "group", "", "only this `GROUP`; without it, every group")
	cmd.Flags().StringVar(&s.Topic, "topic", "", "only this `TOPIC`, by its exact name; without it, every topic")
	cmd.Flags().StringVar(&s.Key, "key", "", "only this `KEY` of --topic")
	cmd.Flags().StringVar(&s.TenantID, "tenant", "", "only this tenant `ID`")
}

// check refuses flags that name nothing, before a store is opened.
func (s *scope) check() error {
	err := storekit.CheckPauseScope(s.PauseScope)
	switch {
	case s.PauseScope == roles.PauseScope{}:
		return usagef("no flag says what is meant: want --group, --topic, --topic with --key, or --tenant")
	case s.Key != "" && s.Topic == "":
		return usagef("--key is given without --topic: a key belongs to a topic, so want both")
	case s.Key != "" && s.TenantID != "":
		return usagef("--key and --tenant are both given: want one of them")
	case err != nil:
		return usagef("%v", err)
	}
	return nil
}

// pausesOf returns the store's role.
func pausesOf(store opened) (roles.Pauses, error) {
	pauses, ok := outmill.As[roles.Pauses](store.Store)
	if !ok {
		return nil, fmt.Errorf("outmill: the store %s cannot pause: it lacks the role roles.Pauses", store.shown)
	}
	return pauses, nil
}

func groupsPause() *cobra.Command {
	var on target
	var what scope
	var by, reason string
	cmd := &cobra.Command{
		Use:   "pause [URL | --source NAME]",
		Short: "Stop the deliveries of a group, a topic, a key or a tenant",
		Long: `Stops the deliveries of the records that match all of the flags, in all processes, until
outmill groups resume. Handlers that run finish. Publishing continues, and the records
keep their order, their attempts and their due times. You may repeat the command:
it replaces the name and the reason. outmill groups list shows the pauses.`,
		Example: `  outmill groups pause sqlite:orders.db --group billing --reason "the bank is down"
  outmill groups pause sqlite:orders.db --topic orders --key 'customer 7'`,
	}
	on.flags(cmd)
	on.tenantIsScope = true
	what.flags(cmd)
	cmd.Flags().StringVar(&by, "by", operator(), "the `NAME` of who pauses")
	cmd.Flags().StringVar(&reason, "reason", "", "the `TEXT` for those who find the pause")
	return does(cmd, func(ctx context.Context, args []string) error {
		url, _, err := on.take(args)
		if err == nil {
			err = what.check()
		}
		if err != nil {
			return err
		}
		return on.with(ctx, url, func(store opened) error {
			pauses, err := pausesOf(store)
			if err == nil {
				err = pauses.Pause(ctx, what.PauseScope, by, reason)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Paused: %s.\n", what.PauseScope)
			return err
		})
	})
}

func groupsResume() *cobra.Command {
	var on target
	var what scope
	cmd := &cobra.Command{
		Use:   "resume [URL | --source NAME]",
		Short: "Continue the deliveries that groups pause stopped",
		Long: `Ends the pause of exactly this scope: the flags are those of the pause. Deliveries
continue where they stopped, in order. If there is no such pause, the command fails and
lists the pauses.`,
		Example: "  outmill groups resume sqlite:orders.db --group billing",
	}
	on.flags(cmd)
	on.tenantIsScope = true
	what.flags(cmd)
	return does(cmd, func(ctx context.Context, args []string) error {
		url, _, err := on.take(args)
		if err == nil {
			err = what.check()
		}
		if err != nil {
			return err
		}
		return on.with(ctx, url, func(store opened) error {
			pauses, err := pausesOf(store)
			if err != nil {
				return err
			}
			ended, err := pauses.Resume(ctx, what.PauseScope)
			if err != nil {
				return err
			}
			if !ended {
				return noSuchPause(ctx, pauses, what.PauseScope)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Resumed: %s.\n", what.PauseScope)
			return err
		})
	})
}

func noSuchPause(ctx context.Context, pauses roles.Pauses, what roles.PauseScope) error {
	all, err := pauses.Paused(ctx)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("outmill: there is no pause of %s; the pauses are:", what)
	for _, p := range all {
		text += "\n  " + oneLine(p.String(), 200)
	}
	if len(all) == 0 {
		text = fmt.Sprintf("outmill: there is no pause of %s: nothing is paused", what)
	}
	return fmt.Errorf("%s", text)
}

// operator names the person at the terminal, such as ann@host.
func operator() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
