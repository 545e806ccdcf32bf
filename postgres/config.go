package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"log/slog"
	"regexp"
	"time"

	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Defaults of Config.
const (
	DefaultSchema      = "outmill"
	DefaultDedupWindow = 24 * time.Hour
	// DefaultRetainJoins is how long a join is kept that has ended.
	DefaultRetainJoins    = 24 * time.Hour
	DefaultNotifyInterval = 20 * time.Millisecond
	// DefaultMaxPayload is the largest payload that is taken whatever the settings of
	// pool and driver: PostgreSQL reads a literal of 512 MiB at most, and a payload has
	// twice its size there.
	DefaultMaxPayload = 1<<28 - 1<<20
	// MostMaxPayload is the largest MaxPayload. PostgreSQL takes 1 GiB for a row in any
	// form; in the text form, which pg_dump uses, a payload has twice its size. 1 MiB
	// is for the other columns.
	MostMaxPayload = 1<<29 - 1<<20
)

// Config holds the settings of a Store. The zero value is the default.
type Config struct {
	// Name identifies the store in logs, metrics and deliveries. Open's default
	// is "postgres:" and the database's name, with "/" and the Schema where that is
	// not the default; New's is "postgres".
	Name string
	// Schema is where the tables are. Any name that PostgreSQL takes, at most 63
	// bytes. Default "outmill".
	Schema string
	// TablePrefix begins the name of every table, index and view. Two stores
	// with different prefixes share one schema. Empty, or a letter or _, then
	// letters, digits and _, at most 40 of them. Default none.
	TablePrefix string
	// AppendLogLevel is the level of the line that each call logs which appends
	// records: how many, to which topics, with which correlation ids. Info unless set;
	// slog.LevelDebug is debug, and what is below is trace.
	AppendLogLevel slog.Level
	// Retain is how long a processed record is kept. 0 deletes it on ack.
	Retain time.Duration
	// RetainJoins is how long a join is kept that has ended. Default 24 h.
	RetainJoins time.Duration
	// DedupWindow is how long a dedup key is remembered. Default 24 h.
	DedupWindow time.Duration
	// MaxPayload is the size in bytes of the largest payload that is taken, at
	// most MostMaxPayload (511 MiB). What is above the default needs a pool that does
	// not send statements as text (pgx.QueryExecModeSimpleProtocol). Programs and server
	// hold payloads in memory more than once. Default 255 MiB.
	MaxPayload int

	// Lane is where records go that are due at once. LaneLog has Ensure turn the log
	// on for all programs on the schema, which then have to know of it (version 2 of
	// the schema); it stays on. LaneRows has this program's appends write to the
	// records, whatever others do. Readers read both. Default: the schema's, which is
	// LaneLog where Ensure has created it, and LaneRows where it was there before and
	// nobody has turned the log on.
	Lane Lane
	// EnsureSchema has Open, or after New the first call that is not in a
	// caller's transaction, do what Ensure does. Default: Ensure is called
	// explicitly.
	EnsureSchema bool

	// DurableSettle has Claim, Ack and Extend wait for the disk (synchronous_commit as
	// the server has it), as appends do, and whatever gives records back. By default
	// they do not: a crash of the server may then hand out again what was acked within
	// its last moments (three times wal_writer_delay, 0.6 s unless set), maybe after
	// later records of its key. Delivery is at least once either way, first deliveries
	// are in order, and nothing is lost.
	DurableSettle bool

	// NotifyInterval is the least time between two notifications that this store
	// sends to the subscribers and forwarders of other processes. PostgreSQL
	// commits transactions that notify one after the other, so not each does.
	// What a caller's transaction commits that did not notify, after the end of the
	// interval, is found by polling, or with the next notification.
	// Negative turns NOTIFY and LISTEN off: readers poll. It must be off where
	// callers prepare their transactions (PREPARE TRANSACTION). Default 20 ms.
	NotifyInterval time.Duration
	// ListenURL is a connection string for the one connection that listens for
	// notifications. It is needed where the pool goes through a proxy that pools
	// transactions, such as PgBouncer, and should lead past it. Default: as the
	// pool connects.
	ListenURL string

	// TxFromContext finds the transaction of a context that WithTx did not make,
	// such as watermill-sql's: Adopt(sql.TxFromContext). What it returns is what
	// WithTx takes, in the database of this store. Default none.
	TxFromContext func(ctx context.Context) (tx any, ok bool)

	// DB is a pool of database/sql on the same database, on which Transact begins its
	// transactions, for handlers that use gorm, ent, bun or another library that cannot
	// use a pgx.Tx. The user owns it and closes it. Default nil: the store's pgx pool.
	DB *sql.DB
}

// Adopt makes a Config.TxFromContext of a function such as the TxFromContext of
// watermill-sql, v3 or v4.
func Adopt[T any](from func(ctx context.Context) (T, bool)) func(ctx context.Context) (any, bool) {
	return sqlkit.Adopt(from)
}

var prefixPattern = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,39})?$`)

const maxIdentifier = 63

func (c *Config) setDefaults() {
	c.Name = cmp.Or(c.Name, "postgres")
	c.Schema = cmp.Or(c.Schema, DefaultSchema)
	c.RetainJoins = cmp.Or(c.RetainJoins, DefaultRetainJoins)
	c.DedupWindow = cmp.Or(c.DedupWindow, DefaultDedupWindow)
	c.MaxPayload = cmp.Or(c.MaxPayload, DefaultMaxPayload)
	c.NotifyInterval = cmp.Or(c.NotifyInterval, DefaultNotifyInterval)
}

// Validate reports every setting that makes no sense, each as an
// outmill.ErrInvalidConfig. Unset fields are fine.
func (c Config) Validate() error {
	check := storekit.CheckConfig("postgres.Config")
	check.Refuse(c.Schema != "" && !isIdentifier(c.Schema), "Schema is %q: want the name of a schema, 1 to 63 bytes without NUL", c.Schema)
	check.Refuse(!prefixPattern.MatchString(c.TablePrefix), "TablePrefix is %q: want a letter or _, then letters, digits and _, at most 40",
		c.TablePrefix)
	check.Refuse(c.Lane != "" && c.Lane != LaneRows && c.Lane != LaneLog, "Lane is %q: want %q, %q or nothing", c.Lane, LaneLog, LaneRows)
	check.AppendLogLevel(c.AppendLogLevel)
	check.Duration("Retain", c.Retain, "")
	check.Duration("RetainJoins", c.RetainJoins, "24 h")
	check.Duration("DedupWindow", c.DedupWindow, "24 h")
	check.MaxPayload(c.MaxPayload, MostMaxPayload, "255 MiB")
	return check.Err()
}
