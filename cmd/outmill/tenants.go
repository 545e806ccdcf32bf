package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/spf13/cobra"

	"github.com/outmill/outmill/tenants"
)

// configured is what the file of --config says about the store of a command. It is the file of
// outmill forward; settings that do not say which stores there are, are ignored.
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

// read reads the file and picks the tenant, unless the command line names a store, which wins. A filter by
// tenant id becomes the choice of a store, because all records of that store are the tenant's.
func (c *configured) read(named bool) (err error) {
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
	picks := flag.Usage == pickUsage
	switch {
	case picks && named && c.configFile != "":
		return usagef("--tenant picks one of the tenants in the file of --config: want it without a URL and without --source")
	case picks && !c.isSet():
		return usagef("--tenant picks one of the tenants in the file of --config, and there are none")
	case named || !c.isSet():
		return nil
	}
	if c.settings.Discover == nil {
		i := slices.IndexFunc(c.settings.Tenants, func(t tenant) bool { return t.Key == name })
		if i < 0 {
			return c.notPicked(name, c.settings.discovery(created))
		}
		c.settings.URL, c.settings.Tenants = c.settings.Tenants[i].URL, nil
	}
	c.picked = name
	if c.tenantIsValue {
		return nil
	}
	return flag.Value.Set("")
}

// notPicked says that --tenant is none of these.
func (c *configured) notPicked(name string, all []tenants.Tenant) error {
	return usagef("--tenant is %.60q: %s has %s", name, c.configFile, namesOf(all))
}

// tenantMissing says that a command is for one tenant and none was picked. use is what for.
func (c *configured) tenantMissing(ctx context.Context, use string) error {
	all := c.settings.discovery(created)
	if d := c.settings.Discover; d != nil {
		found, err := d.open(created, nil)
		if err != nil {
			return c.undiscovered(err)
		}
		all, err = found.list(ctx)
		if err := errors.Join(err, found.close()); err != nil {
			return c.undiscovered(err)
		}
	}
	return usagef("--tenant is missing: want the tenant %s: %s has %s", use, c.configFile, namesOf(all))
}

// namesOf are those of the tenants, and how many there are if they are many.
func namesOf(all []tenants.Tenant) string {
	const most = 20
	if len(all) == 0 {
		return "none"
	}
	var names []string
	for _, t := range all[:min(len(all), most)] {
		names = append(names, oneLine(t.Key, 60))
	}
	text := strings.Join(names, ", ")
	if more := len(all) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// undiscovered names the section of the file in an error of its discovery.
func (c *configured) undiscovered(err error) error {
	if usage := usageError(""); errors.As(err, &usage) {
		return usagef("--config %s: %v", c.configFile, err)
	}
	text := strings.TrimPrefix(err.Error(), "outmill/tenants: discovery: ")
	return &remedied{fmt.Sprintf("outmill: --config %s: %s: %s", c.configFile, c.settings.Discover.name(), text), err}
}

// arguments are those that name the store or the set on the command line.
func (c *configured) arguments() string {
	text := "--config " + quoted(c.configFile)
	if c.picked != "" {
		text += " --tenant " + quoted(c.picked)
	}
	return text
}

// isSet reports whether the file has a set and no tenant of it is picked.
func (c *configured) isSet() bool {
	return len(c.settings.Tenants) > 0 || c.settings.Discover != nil && c.picked == ""
}

// openSet opens the stores of all tenants.
func (t *target) openSet(ctx context.Context, logger watermill.LoggerAdapter) (opened, error) {
	limits := t.settings.Limits
	config := tenants.Config{
		WithoutWake: !t.listens, MaxConnections: limits.maxConnections, Parallel: limits.parallel, MaxIdle: limits.maxIdle,
	}
	store := opened{arguments: t.configured.arguments()}
	d := t.settings.Discover
	if d == nil {
		config.Discovery = t.settings.discovery(t.filesOf())
	} else {
		found, err := d.open(t.filesOf(), logger)
		if err != nil {
			return opened{}, t.undiscovered(err)
		}
		config.Discovery, config.Refresh, config.Ensure = found.Discovery, d.every, found.ensure || t.ensures
		store.defaults, store.release = found.defaults, found.close
	}
	set, err := tenants.New(ctx, config, logger)
	switch {
	case err != nil && d != nil:
		return opened{}, t.undiscovered(errors.Join(err, store.release()))
	case err != nil:
		return opened{}, err
	case d != nil:
		store.discovered = set
	}
	n := set.Status().Discovery.Tenants
	store.Store, store.shown, store.several = set, count(n, "tenant"), n != 1
	return store, nil
}

// openPicked opens the store of the tenant of a discovery that --tenant names.
func (t *target) openPicked(ctx context.Context, logger watermill.LoggerAdapter) (_ opened, err error) {
	found, err := t.settings.Discover.open(created, logger)
	if err != nil {
		return opened{}, t.undiscovered(err)
	}
	released := false
	defer func() {
		if !released {
			err = errors.Join(err, found.close())
		}
	}()
	all, err := found.list(ctx)
	if err != nil {
		return opened{}, t.undiscovered(err)
	}
	picked := slices.DeleteFunc(slices.Clone(all), func(tenant tenants.Tenant) bool { return tenant.Key != t.picked })
	opener, opens := found.Discovery.(tenants.Opener)
	switch {
	case len(picked) == 0:
		return opened{}, t.notPicked(t.picked, all)
	case len(picked) > 1:
		return opened{}, t.undiscovered(fmt.Errorf("%s have the key %q: want one", count(len(picked), "tenant"), t.picked))
	case picked[0].URL == "":
		return opened{}, t.undiscovered(fmt.Errorf("the tenant %q has no URL", t.picked))
	case !opens:
		return t.openURL(ctx, picked[0].URL, t.configured.arguments(), logger)
	}
	store, err := opener.Open(ctx, picked[0])
	if err != nil {
		return opened{}, t.undiscovered(err)
	}
	released = true
	one := opened{
		Store: store, shown: t.picked + " of " + found.shown, arguments: t.configured.arguments(), defaults: found.defaults, release: found.close,
	}
	if found.ensure {
		if err := store.Ensure(ctx); err != nil {
			return opened{}, errors.Join(err, one.Close())
		}
	}
	return one, nil
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
