package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"log/slog"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Defaults of Config.
const (
	DefaultSchema      = "outmill"
	DefaultDedupWindow = 24 * time.Hour
	// DefaultRetainJoins is how long a join is kept after its end.
	DefaultRetainJoins = 24 * time.Hour
	// DefaultRetainAudit is how long the audit keeps an entry.
	DefaultRetainAudit    = storekit.AuditRetention
	DefaultNotifyInterval = 20 * time.Millisecond
	// DefaultMaxPayload is the largest payload that every setting of pool and driver can send:
	// PostgreSQL reads a literal of at most 512 MiB, and a payload has twice its size there.
	DefaultMaxPayload = 1<<28 - 1<<20
	// MostMaxPayload is the largest MaxPayload. PostgreSQL takes at most 1 GiB for a row in any
	// form. In the text form, which pg_dump uses, a payload has twice its size. 1 MiB is left
	// for the other columns.
	MostMaxPayload = 1<<29 - 1<<20
)

// Config holds the settings of a Store. The zero value is the default.
type Config struct {
	// Name identifies the store in logs, metrics and deliveries. Open's default is "postgres:"
	// and the database's name, followed by "/" and the Schema if that is not the default. New's
	// default is "postgres".
	Name string
	// Schema is the schema of the tables: any name that PostgreSQL takes, at most 63 bytes,
	// without $outmill$.
	// Default "outmill".
	Schema string
	// TablePrefix starts the name of every table, index, function and view. Two stores with different
	// prefixes can share one schema. It is empty, or a letter or _ followed by letters, digits
	// and _, at most 40 characters in all. Default empty.
	TablePrefix string
	// AppendLogLevel is the level of the line that each call logs if it appends records: how
	// many, to which topics, with which correlation ids. nil is
	// slog.LevelDebug; slog.LevelInfo is Info, and levels below Debug are trace.
	AppendLogLevel slog.Leveler
	// Retain is how long a processed record is kept. 0 deletes it on ack.
	Retain time.Duration
	// RetainJoins is how long a join is kept after its end. Default 24 h.
	RetainJoins time.Duration
	// RetainAudit is how long the audit keeps what an operator did. Default 90 days.
	RetainAudit time.Duration
	// DedupWindow is how long a dedup key is remembered. Default 24 h.
	DedupWindow time.Duration
	// MaxPayload is the largest size of a payload in bytes, at most MostMaxPayload (511 MiB). A
	// value above the default needs a pool that does not send statements as text
	// (pgx.QueryExecModeSimpleProtocol). Programs and server hold payloads in memory more than
	// once. Default 255 MiB.
	MaxPayload int

	// FairTopics are the topics, or patterns of topics such as "orders.*", of which claims take as much from each of several
	// parts, so that a tenant with a large backlog does not hold up tenants of other parts. The database keeps them: the
	// first Ensure sets them, and SetFairTopics changes them. A store with other ones can neither append nor claim
	// (outmill.ErrFairTopics). Default none. See storekit.PartOf.
	FairTopics []string
	// EnsureSchema makes Open call Ensure. After New, the first call outside a caller's
	// transaction does so. Default: the user calls Ensure.
	EnsureSchema bool

	// DurableSettle makes Claim, Ack and Extend wait for the disk (the server's
	// synchronous_commit), as appends, Abandon, Fail, Release and Snooze always do. By default
	// they do not wait. A crash of the server may then deliver records again that were acked in
	// its last moments (three times wal_writer_delay, 0.6 s by default), maybe after later
	// records of their key. Either way delivery is at least once, first deliveries are in
	// order, and nothing is lost.
	DurableSettle bool

	// NotifyInterval is the least time between two notifications that this store sends to the
	// subscribers and forwarders of other processes. Not every append notifies, because
	// PostgreSQL commits transactions that notify one after the other. If a caller's
	// transaction did not notify and commits after the end of the interval, readers find its
	// records by polling, or with the next notification. A negative value turns NOTIFY and
	// LISTEN off: readers poll. It must be negative if callers prepare their transactions
	// (PREPARE TRANSACTION). Default 20 ms.
	NotifyInterval time.Duration
	// ListenURL is a connection string for the one connection that listens for notifications.
	// It is needed if the pool goes through a proxy that pools transactions, such as PgBouncer.
	// It should then connect to the server directly. Default: the settings of the pool.
	ListenURL string

	// IdleInTransaction is after how long a silence of its client the server ends a transaction of
	// Transact. It is for a process that was stopped (SIGSTOP, a paused virtual machine) in a
	// handler's transaction: until then its message and key wait, and its locks last. Transact sets
	// it as idle_in_transaction_session_timeout for its transaction only, and only where the
	// session has no limit of its own. It must be longer than a handler works without a statement.
	// Negative sets none. Default: the time until the end of the context, which has the
	// MaxProcessing of an inbox, and 15 min without such an end.
	IdleInTransaction time.Duration

	// TxFromContext finds a transaction in a context that WithTx did not make, such as
	// watermill-sql's: Adopt(sql.TxFromContext). It must return a value that WithTx takes, of
	// the database of this store. Default none.
	TxFromContext func(ctx context.Context) (tx any, ok bool)

	// DB is a pool of database/sql on the same database. Transact begins its transactions on
	// it, for handlers that use database/sql and cannot use a pgx.Tx. With gorm, ent, bun and
	// other libraries that begin their own transactions, inbox.Within needs no DB. The user owns
	// it and closes it. Default nil: Transact uses the store's pgx pool; NewFromDB sets its own pool.
	DB *sql.DB

	// atOnce makes the steps of large work small, for tests.
	atOnce storekit.BatchSize
}

// Adopt makes a Config.TxFromContext of a function such as the TxFromContext of
// watermill-sql, v3 or v4.
func Adopt[T any](from func(ctx context.Context) (T, bool)) func(ctx context.Context) (any, bool) {
	return sqlkit.Adopt(from)
}

var prefixPattern = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,39})?$`)

const maxIdentifier = 63

func isIdentifier(name string) bool {
	return name != "" && len(name) <= maxIdentifier && utf8.ValidString(name) && !strings.Contains(name, "\x00")
}

// functionQuote is around the bodies of the functions of the schema.
const functionQuote = "$outmill$"

func (c *Config) setDefaults() {
	c.Name = cmp.Or(c.Name, "postgres")
	c.Schema = cmp.Or(c.Schema, DefaultSchema)
	c.RetainJoins = cmp.Or(c.RetainJoins, DefaultRetainJoins)
	c.RetainAudit = cmp.Or(c.RetainAudit, DefaultRetainAudit)
	c.DedupWindow = cmp.Or(c.DedupWindow, DefaultDedupWindow)
	c.MaxPayload = cmp.Or(c.MaxPayload, DefaultMaxPayload)
	c.NotifyInterval = cmp.Or(c.NotifyInterval, DefaultNotifyInterval)
}

// Validate returns an outmill.ErrInvalidConfig for every invalid setting, joined. Unset fields
// are valid.
func (c Config) Validate() error {
	check := storekit.CheckConfig("postgres.Config")
	check.Refuse(c.Schema != "" && !isIdentifier(c.Schema), "Schema is %q: want the name of a schema, 1 to 63 bytes without NUL", c.Schema)
	check.Refuse(strings.Contains(c.Schema, functionQuote), "Schema is %q: want a name without %s, which quotes the bodies of functions",
		c.Schema, functionQuote)
	check.Refuse(!prefixPattern.MatchString(c.TablePrefix), "TablePrefix is %q: want a letter or _, then letters, digits and _, at most 40",
		c.TablePrefix)
	check.FairTopics(c.FairTopics)
	check.AppendLogLevel(c.AppendLogLevel)
	check.Duration("Retain", c.Retain, "")
	check.Duration("RetainJoins", c.RetainJoins, "24 h")
	check.Duration("RetainAudit", c.RetainAudit, "90 days")
	check.Duration("DedupWindow", c.DedupWindow, "24 h")
	check.MaxPayload(c.MaxPayload, MostMaxPayload, "255 MiB")
	return check.Err()
}
