package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/dashboard"
)

// tokenVariable is the variable with the token of the dashboard.
const tokenVariable = environment + "_DASHBOARD_TOKEN"

// board has the flags of dashboard.
type board struct {
	target
	term      terminal
	listen    string
	tokenFile string
	config    dashboard.Config
}

func dashboardCommand(term terminal) *cobra.Command {
	b := &board{term: term}
	cmd := &cobra.Command{
		Use:   "dashboard [URL | --source NAME]",
		Short: "Serve a dashboard for browsers",
		Long: `Serves pages with the topics, groups, dead letters, pauses, joins and sagas of a store
until it is stopped. It listens on this machine only unless --listen has another address.

The login needs a token of 16 characters or more: the variable OUTMILL_DASHBOARD_TOKEN or
the first line of --token-file has it. Without them the command makes one and prints it on
standard error. The token is not part of the address, because addresses end up in logs.

The pages only read unless --allow-changes is set, and show no payloads, metadata or error
texts unless --payload or --errors is set. The connection has no TLS: put a proxy that has
it in front before others use the dashboard, and name the proxy's host with --host.`,
		Example: `  outmill dashboard sqlite:orders.db
  outmill dashboard sqlite:orders.db --allow-changes --errors
  outmill dashboard --config forward.yaml --listen :8026 --host admin.example.com --token-file /run/secrets/token`,
	}
	b.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&b.listen, "listen", "127.0.0.1:8026", "serve at this `ADDRESS`")
	flags.StringArrayVar(&b.config.Hosts, "host", nil, "accept this host `NAME` besides localhost and IP addresses; may be repeated")
	flags.StringVar(&b.tokenFile, "token-file", "", "read the token from the first line of this `FILE`")
	flags.BoolVar(&b.config.AllowChanges, "allow-changes", false, "let users requeue, edit, skip and delete records, pause and resume")
	flags.BoolVar(&b.config.ShowPayloads, "payload", false, "show payloads, metadata and the states of sagas")
	flags.BoolVar(&b.config.ShowErrors, "errors", false, "show the error texts of handlers")
	flags.BoolVar(&b.config.SecureCookie, "secure-cookie", false, "send the cookie with TLS only: for a proxy that has TLS")
	flags.DurationVar(&b.config.Every, "every", 2*time.Second, "the `TIME` between two counts while somebody looks")
	return does(cmd, func(ctx context.Context, args []string) error { return b.run(ctx, args) })
}

func (b *board) run(ctx context.Context, args []string) (err error) {
	url, _, err := b.take(args)
	if err != nil {
		return err
	}
	if b.listen == "" {
		return usagef("--listen is empty: want an address such as 127.0.0.1:8026")
	}
	made, err := b.takeToken()
	if err != nil {
		return err
	}
	logger, err := newLogger(b.term, "info", "text")
	if err != nil {
		return err
	}
	store, err := b.open(ctx, url, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := servable(ctx, store); err != nil {
		return err
	}
	if b.config.Name = store.shown; store.discovered != nil {
		// Their number changes while the dashboard serves.
		b.config.Name = "tenants"
	}
	handler, err := dashboard.New(store.Store, b.config, logger)
	if err != nil {
		return err
	}
	return b.serve(ctx, handler, made)
}

// servable refuses a store whose schema does not fit, because every page would only show that error. In a set
// the other stores can be served, and a page lists them all.
func servable(ctx context.Context, store opened) error {
	_, err := store.Stats(ctx, 1)
	for _, unfit := range []error{outmill.ErrSchemaMissing, outmill.ErrSchemaOutdated, outmill.ErrSchemaNewer} {
		if errors.Is(err, unfit) && !store.several {
			return store.remedy(err)
		}
	}
	return nil
}

// takeToken sets the token, and reports whether it is a new one.
func (b *board) takeToken() (made bool, err error) {
	b.config.Token = os.Getenv(tokenVariable)
	if b.tokenFile != "" {
		text, err := os.ReadFile(b.tokenFile)
		if err != nil {
			return false, fmt.Errorf("outmill: --token-file: %w", err)
		}
		b.config.Token, _, _ = strings.Cut(string(text), "\n")
		b.config.Token = strings.TrimSpace(b.config.Token)
		if b.config.Token == "" {
			return false, usagef("--token-file %s has no token in its first line", b.tokenFile)
		}
	}
	if b.config.Token == "" {
		b.config.Token, made = rand.Text(), true
	}
	return made, nil
}

// serve serves until ctx ends, and then lets the requests end.
func (b *board) serve(ctx context.Context, handler *dashboard.Dashboard, made bool) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", b.listen)
	if err != nil {
		return fmt.Errorf("outmill: --listen: %w", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute}
	server.RegisterOnShutdown(handler.Close)
	fmt.Fprintf(b.term.err, "Serving the dashboard at http://%s/\n", listener.Addr())
	if made {
		fmt.Fprintf(b.term.err, "Token for the login: %s\n", b.config.Token)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("outmill: serve the dashboard: %w", err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = server.Shutdown(stopping)
	if err != nil {
		err = errors.Join(fmt.Errorf("outmill: stop the dashboard: %w", err), server.Close())
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
