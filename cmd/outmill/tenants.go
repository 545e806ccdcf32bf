package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/spf13/cobra"

	"github.com/outmill/outmill/tenants"
)

// configured is what the file of --config says about the store of a command. It is the file of
// outmill forward; other settings than url, source and tenants are ignored.
type configured struct {
	cmd        *cobra.Command
	configFile string
	settings   settings
	// picked is the tenant of --tenant; "" if all are meant.
	picked string
	// tenantIsScope says that --tenant of this command names no store.
	tenantIsScope bool
	// tenantIsValue says that --tenant also is a value that the command needs.
	tenantIsValue bool
}

func (c *configured) flags(cmd *cobra.Command) {
	c.cmd = cmd
	cmd.Flags().StringVar(&c.configFile, "config", "",
		"take the store, or the tenants, from this `FILE`, which may be that of outmill forward; a URL and --source win")
}

// pickUsage is the help of the flag --tenant of commands that have no filter of that name.
const pickUsage = "work on the store of this `TENANT` of --config only (default all)"

// tenantFlags gives --tenant to each command that takes --config and has no flag of that name.
func tenantFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	if cmd.Name() != "forward" && flags.Lookup("config") != nil && flags.Lookup("tenant") == nil {
		flags.String("tenant", "", pickUsage)
	}
	for _, member := range cmd.Commands() {
		tenantFlags(member)
	}
}

// read reads the file and picks the tenant. A filter by tenant id becomes the choice of a store,
// because all records of that store are the tenant's.
func (c *configured) read() (err error) {
	if c.cmd == nil {
		return nil
	}
	if c.settings, err = readSettings(c.configFile); err != nil {
		return err
	}
	flag := c.cmd.Flags().Lookup("tenant")
	if flag == nil || c.tenantIsScope || flag.Value.String() == "" {
		return nil
	}
	name := flag.Value.String()
	if len(c.settings.Tenants) == 0 {
		if flag.Usage == pickUsage {
			return usagef("--tenant picks one of the tenants in the file of --config, and there are none")
		}
		return nil
	}
	for _, t := range c.settings.Tenants {
		if t.Key != name {
			continue
		}
		c.settings.URL, c.settings.Tenants, c.picked = t.URL, nil, t.Key
		if c.tenantIsValue {
			return nil
		}
		return flag.Value.Set("")
	}
	return usagef("--tenant is %.60q: %s has %s", name, c.configFile, c.tenantNames())
}

// tenantNames are those of the file, and how many there are if they are many.
func (c *configured) tenantNames() string {
	const most = 20
	var names []string
	for _, t := range c.settings.Tenants[:min(len(c.settings.Tenants), most)] {
		names = append(names, t.Key)
	}
	text := strings.Join(names, ", ")
	if more := len(c.settings.Tenants) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// arguments are those that name the store or the set on the command line.
func (c *configured) arguments() string {
	text := "--config " + quoted(c.configFile)
	if c.picked != "" {
		text += " --tenant " + quoted(c.picked)
	}
	return text
}

func (c *configured) isSet() bool { return len(c.settings.Tenants) > 0 }

// openSet opens the stores of all tenants.
func (t *target) openSet(ctx context.Context, logger watermill.LoggerAdapter) (opened, error) {
	discovery := t.settings.discovery(t.filesOf())
	set, err := tenants.New(ctx, tenants.Config{Discovery: discovery, WithoutWake: !t.listens}, logger)
	if err != nil {
		return opened{}, err
	}
	return opened{
		Store: set, shown: count(len(discovery), "tenant"), arguments: t.configured.arguments(), several: len(discovery) > 1,
	}, nil
}

// leftOutError says that the result of a command lacks some tenants.
type leftOutError struct{ reasons []string }

func (e leftOutError) Error() string {
	return fmt.Sprintf("outmill: the result is without %s:\n%s", count(len(e.reasons), "tenant"), strings.Join(e.reasons, "\n"))
}

// leftOut returns an error if the stores of some tenants could not be opened, or are in one of the
// other states.
func leftOut(store opened, others ...tenants.State) error {
	set, is := store.Store.(*tenants.Set)
	if !is {
		return nil
	}
	var e leftOutError
	for _, m := range set.Status().Members {
		if m.Err != nil && (m.State == tenants.StateOpening || slices.Contains(others, m.State)) {
			err := remedy(m.Err, m.Name, store.arguments+" --tenant "+quoted(m.Name))
			e.reasons = append(e.reasons, fmt.Sprintf("%s: %v", m.Name, err))
		}
	}
	if len(e.reasons) == 0 {
		return nil
	}
	return e
}
