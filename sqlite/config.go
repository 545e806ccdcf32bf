package sqlite

import (
	"context"
	"log/slog"
	"regexp"
	"time"

	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Defaults of Config.
const (
	DefaultTablePrefix = "outmill_"
	DefaultDedupWindow = 24 * time.Hour
	DefaultBusyTimeout = 5 * time.Second
	// DefaultRetainJoins is how long a join is kept that has ended.
	DefaultRetainJoins = 24 * time.Hour
	// DefaultMaxPayload leaves room for the other columns: SQLite, as the driver has
	// it, holds rows of up to 1e9 bytes.
	DefaultMaxPayload = 900_000_000
)

// Config holds the settings of a Store. The zero value is the default.
type Config struct {
	// Name identifies the store in logs, metrics and deliveries. Open's default
	// is "sqlite:" and the file's name without its folder, New's is "sqlite".
	Name string
	// TablePrefix begins the name of every table, index and view. Two stores
	// with different prefixes share one database. A letter or _, then letters,
	// digits and _, at most 40 of them. Default "outmill_".
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
	// BusyTimeout is how long an operation waits for somebody else's write
	// transaction before it gives up. A context that ends earlier ends the wait
	// earlier. Open also makes it the busy_timeout of the connections that it
	// opens. Default 5 s.
	BusyTimeout time.Duration
	// EnsureSchema has Open, or after New the first call that is not in a caller's
	// transaction, do what Ensure does. Default: Ensure is called explicitly.
	EnsureSchema bool
	// TxFromContext finds the transaction of a context that WithTx did not make,
	// such as one that a middleware puts there: Adopt(yours.TxFromContext). What it
	// returns is what WithTx takes, in the database of this store. Default none.
	TxFromContext func(ctx context.Context) (tx any, ok bool)
	// MaxPayload is the size in bytes of the largest payload that is taken, at
	// most the default of 900,000,000.
	MaxPayload int
}

// Adopt makes a Config.TxFromContext of a function that returns a transaction of
// its own kind, such as a *sql.Tx.
func Adopt[T any](from func(ctx context.Context) (T, bool)) func(ctx context.Context) (any, bool) {
	return sqlkit.Adopt(from)
}

var prefixPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,39}$`)

func (c *Config) setDefaults() {
	if c.Name == "" {
		c.Name = "sqlite"
	}
	if c.TablePrefix == "" {
		c.TablePrefix = DefaultTablePrefix
	}
	if c.RetainJoins == 0 {
		c.RetainJoins = DefaultRetainJoins
	}
	if c.DedupWindow == 0 {
		c.DedupWindow = DefaultDedupWindow
	}
	if c.BusyTimeout == 0 {
		c.BusyTimeout = DefaultBusyTimeout
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = DefaultMaxPayload
	}
}

// Validate reports every setting that makes no sense, each as an
// outmill.ErrInvalidConfig. Unset fields are fine.
func (c Config) Validate() error {
	check := storekit.CheckConfig("sqlite.Config")
	check.Refuse(c.TablePrefix != "" &&
		!prefixPattern.MatchString(c.TablePrefix), "TablePrefix is %q: want a letter or _, then letters, digits and _, at most 40", c.TablePrefix)
	check.AppendLogLevel(c.AppendLogLevel)
	check.Duration("Retain", c.Retain, "")
	check.Duration("RetainJoins", c.RetainJoins, "24 h")
	check.Duration("DedupWindow", c.DedupWindow, "24 h")
	check.Duration("BusyTimeout", c.BusyTimeout, "5 s")
	check.MaxPayload(c.MaxPayload, DefaultMaxPayload, "900,000,000")
	return check.Err()
}
