package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/spf13/cobra"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/connect"
	"github.com/outmill/outmill/roles"

	// The stores that the tool can open register themselves.
	_ "github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/mysql"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/sqlserver"
	"github.com/outmill/outmill/tenants"
)

// environment is the prefix of the tool's environment variables.
const environment = "OUTMILL"

// urlVariable has the URL of the store for commands that name none.
const urlVariable = environment + "_URL"

// target is the store, or the set of tenants, that a command works on.
type target struct {
	source string
	configured
	// files is what becomes of the URLs of SQLite files; nil is existing.
	files func(url string) string
	// listens says that the command waits for the stores' wake-ups.
	listens bool
	// ensures says that the schema of a tenant that comes later is made, too.
	ensures bool
}

func (t *target) flags(cmd *cobra.Command) {
	t.sourceFlag(cmd)
	t.configured.flags(cmd)
}

func (t *target) sourceFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.source, "source", "",
		"take the URL from OUTMILL_SOURCES_<`NAME`>_<PROVIDER>_CONNECTION_STRING "+
			"(without a URL: the variable OUTMILL_URL, else the source named default)")
}

// take returns the URL in front of the arguments, and the other arguments, which have these names.
// The URL is there if there are more arguments than names.
func (t *target) take(args []string, names ...string) (url string, rest []string, err error) {
	if err := t.read(t.source != "" || len(args) > len(names)); err != nil {
		return "", nil, err
	}
	wanted := strings.Join(names, " and ")
	switch without := len(names); {
	case len(args) == without && without > 0 && t.source == "" && t.configFile == "" && isURL(args[0]):
		return "", nil, usagef("%s is missing: want it behind the URL %s", wanted, outmill.RedactURL(args[0]))
	case len(args) == without:
		return "", args, nil
	case len(args) == without+1 && t.source != "":
		return "", nil, usagef("--source takes the URL from the environment: want it without a URL")
	case len(args) == without+1:
		return args[0], args[1:], nil
	case without == 0:
		return "", nil, usagef("want one URL, such as sqlite:orders.db; got %s", count(len(args), "argument"))
	case len(args) < without:
		return "", nil, usagef("%s is missing: want a URL, such as sqlite:orders.db, and %s", wanted, wanted)
	default:
		return "", nil, usagef("want a URL, such as sqlite:orders.db, and %s; got %s", wanted, count(len(args), "argument"))
	}
}

// isURL reports whether an argument is the URL of a store that the tool can open.
func isURL(argument string) bool {
	_, err := outmill.ProviderFor(argument)
	return err == nil
}

// opened is an open store with the URL for messages, which has no password.
type opened struct {
	outmill.Store
	shown string
	// arguments name the store on the command line.
	arguments string
	// several says that shown are several stores.
	several  bool
	defaults outmill.WorkerDefaults
	// discovered is a set whose tenants come from a discovery; nil if there is none.
	discovered *tenants.Set
	// release closes what the store shares with others; nil if there is nothing.
	release func() error
}

// Close closes the store, and then what it shares with others.
func (o opened) Close() error {
	err := o.Store.Close()
	if o.release != nil {
		err = errors.Join(err, o.release())
	}
	return err
}

// verb returns the form of a verb for shown.
func (o opened) verb(one, several string) string {
	if o.several {
		return several
	}
	return one
}

// open opens the store of the URL, else that of --source, else what the file of --config names,
// else the source named default.
func (t *target) open(ctx context.Context, url string, logger watermill.LoggerAdapter) (opened, error) {
	arguments := t.arguments(url)
	if url == "" && t.source == "" {
		switch {
		case t.isSet():
			return t.openSet(ctx, logger)
		case t.settings.Discover != nil:
			return t.openPicked(ctx, logger)
		}
		url, t.source = t.settings.URL, t.settings.source()
		if url == "" && t.source == "" {
			url = os.Getenv(urlVariable)
		}
	}
	return t.openURL(ctx, url, arguments, logger)
}

// openURL opens the store of the URL, else that of --source. arguments are those that name it.
func (t *target) openURL(ctx context.Context, url, arguments string, logger watermill.LoggerAdapter) (opened, error) {
	conn := connect.Connection{URL: url, Source: t.source, Lookup: connect.LookupEnv(environment)}
	choice, err := connect.Resolve(conn)
	if err != nil {
		return opened{}, t.unresolved(url, err)
	}
	shown, opening := outmill.RedactURL(choice.URL), outmill.RedactURL(t.filesOf()(choice.URL))
	store, choice, err := connect.Open(ctx, withFiles(conn, t.filesOf()), logger)
	if err != nil {
		// A parameter that the user did not write is not shown, nor is the name of a field of this program.
		text := strings.ReplaceAll(err.Error(), opening, shown)
		err = &remedied{strings.TrimPrefix(text, "Connection.URL: "), err}
		return opened{}, remedy(err, shown, arguments)
	}
	return opened{Store: store, shown: shown, arguments: arguments, defaults: choice.Defaults}, nil
}

func (t *target) filesOf() func(url string) string {
	if t.files != nil {
		return t.files
	}
	return existing
}

// arguments are those that name the store, for a command that an error suggests.
func (t *target) arguments(url string) string {
	switch {
	case url != "":
		return quoted(outmill.RedactURL(url))
	case t.source != "":
		return "--source " + quoted(t.source)
	case t.configFile != "":
		return t.configured.arguments()
	}
	if os.Getenv(urlVariable) != "" {
		return `"$` + urlVariable + `"`
	}
	return "--source " + connect.DefaultSource
}

// unresolved explains why there is no URL that the tool can open.
func (t *target) unresolved(url string, err error) error {
	var unknown *outmill.InvalidURLError
	if errors.As(err, &unknown) && len(unknown.Registered) > 0 {
		return fmt.Errorf("outmill: this tool cannot open %q: it opens URLs that begin with %s", unknown.URL,
			strings.Join(unknown.Registered, ", "))
	}
	if info, statErr := os.Stat(url); unknown != nil && statErr == nil && info.Mode().IsRegular() {
		return fmt.Errorf("outmill: %s is a file, and has no scheme: want the URL sqlite:%s", url, url)
	}
	var missing *connect.ConnectionNotFoundError
	if errors.As(err, &missing) {
		return usagef("no store is named: want a URL, such as sqlite:orders.db, --config FILE, or the variable %s or "+
			"%s_SOURCES_%s_<PROVIDER>_CONNECTION_STRING", urlVariable, environment, strings.ToUpper(cmp.Or(t.source, connect.DefaultSource)))
	}
	return &remedied{strings.TrimPrefix(err.Error(), "Connection.URL: "), err}
}

// with opens the store of the URL, calls fn and closes the store.
func (t *target) with(ctx context.Context, url string, fn func(store opened) error) (err error) {
	store, err := t.open(ctx, url, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return errors.Join(store.remedy(fn(store)), leftOut(store))
}

// remedy names the command that mends the store. The errors of several stores name their tenants.
func (o opened) remedy(err error) error {
	switch {
	case err == nil:
		return nil
	case !o.several:
		return remedy(err, o.shown, o.arguments)
	case errors.Is(err, outmill.ErrSchemaMissing) || errors.Is(err, outmill.ErrSchemaOutdated):
		return fmt.Errorf("%w\noutmill: for the schemas of all tenants: outmill schema ensure %s", err, o.arguments)
	}
	return err
}

// get returns a record, or an error that names the id and the store.
func (o opened) get(ctx context.Context, id outmill.WorkItemID) (*outmill.Record, error) {
	r, err := o.Get(ctx, id)
	if copies := (*outmill.CopiesError)(nil); errors.As(err, &copies) {
		return nil, copies
	}
	if errors.Is(err, outmill.ErrNotFound) {
		return nil, fmt.Errorf("%w: %s %s no record with the id %s: it was processed and deleted, or it is in another store: "+
			"outmill list shows the ids", outmill.ErrNotFound, o.shown, o.verb("has", "have"), id)
	}
	return r, err
}

// repairs returns the role that finds and changes records by a filter, and repairs dead ones.
func (o opened) repairs() (roles.Repairs, error) {
	repairs, ok := outmill.As[roles.Repairs](o.Store)
	if !ok {
		return nil, fmt.Errorf("outmill: the store %s finds no records by a filter, and cannot edit or skip dead ones, because it lacks "+
			"the role roles.Repairs: name the records by their ids", o.shown)
	}
	return repairs, nil
}

// shellOf returns how statements are written for the store's own shell.
func shellOf(store outmill.Store) sqlText {
	switch store.(type) {
	case *sqlserver.Store:
		return sqlText{end: asBatch}
	case *postgres.Store, *sqlite.Store, *mysql.Store:
		return goose
	}
	return sqlText{end: terminated}
}
