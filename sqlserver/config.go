package sqlserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Defaults of Config.
const (
	DefaultSchema      = "dbo"
	DefaultTable       = "Outbox"
	DefaultDedupWindow = 24 * time.Hour
	// DefaultRetainJoins is how long a join is kept that has ended.
	DefaultRetainJoins = 24 * time.Hour
	// DefaultMaxPayload is far below MostMaxPayload, because the driver holds a whole
	// append in memory more than once.
	DefaultMaxPayload = 256 << 20
	// MostMaxPayload is the largest MaxPayload: VARBINARY(MAX) takes 2 GiB, of which
	// 1 MiB is for the other columns.
	MostMaxPayload = 1<<31 - 1<<20
)

// Config holds the settings of a Store. The zero value is the default.
type Config struct {
	// Name identifies the store in logs, metrics and deliveries. Open's default
	// is "sqlserver:" and the database's name, with "/" and the Schema where that is
	// not the default; New's is "sqlserver".
	Name string
	// Schema is where the tables are. A letter or _, then letters, digits and _,
	// at most 100 of them. Default "dbo".
	Schema string
	// Table is the name of the table of records, and begins the names of all else:
	// Outbox, OutboxJoin, OutboxJoinMember, Outbox_Claim and so on. Two stores with
	// different tables share one schema. As Schema, at most 100. Default "Outbox".
	Table string
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
	// most MostMaxPayload. Default 256 MiB.
	MaxPayload int
	// EnsureSchema has Open, or after New the first call that is not in a caller's
	// transaction, do what Ensure does. Default: Ensure is called explicitly.
	EnsureSchema bool
	// TxFromContext finds the transaction of a context that WithTx did not make,
	// such as watermill-sql's: Adopt(sql.TxFromContext). What it returns is what
	// WithTx takes, in the database of this store. Default none.
	TxFromContext func(ctx context.Context) (tx any, ok bool)
}

// Adopt makes a Config.TxFromContext of a function such as the TxFromContext of
// watermill-sql, v3 or v4.
func Adopt[T any](from func(ctx context.Context) (T, bool)) func(ctx context.Context) (any, bool) {
	return sqlkit.Adopt(from)
}

// namePattern keeps to names that the driver takes for those of table types,
// which it splits at dots.
var namePattern = regexp.MustCompile(`^([\p{L}_][\p{L}\p{N}_]{0,99})?$`)

func (c *Config) setDefaults() {
	c.Name = cmp.Or(c.Name, "sqlserver")
	c.Schema = cmp.Or(c.Schema, DefaultSchema)
	c.Table = cmp.Or(c.Table, DefaultTable)
	c.RetainJoins = cmp.Or(c.RetainJoins, DefaultRetainJoins)
	c.DedupWindow = cmp.Or(c.DedupWindow, DefaultDedupWindow)
	c.MaxPayload = cmp.Or(c.MaxPayload, DefaultMaxPayload)
}

// Validate reports every setting that makes no sense, each as an
// outmill.ErrInvalidConfig. Unset fields are fine.
func (c Config) Validate() error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, invalid("sqlserver.Config."+format, args...))
		}
	}
	refuse(!namePattern.MatchString(c.Schema), "Schema is %q: want a letter or _, then letters, digits and _, at most 100", c.Schema)
	refuse(!namePattern.MatchString(c.Table), "Table is %q: want a letter or _, then letters, digits and _, at most 100", c.Table)
	if err := storekit.CheckAppendLogLevel(c.AppendLogLevel); err != nil {
		refuse(true, "%w", err)
	}
	refuse(c.Retain < 0, "Retain is %s: want 0 or more", c.Retain)
	refuse(c.RetainJoins < 0, "RetainJoins is %s: want 0 (24 h) or more", c.RetainJoins)
	refuse(c.DedupWindow < 0, "DedupWindow is %s: want 0 (24 h) or more", c.DedupWindow)
	refuse(c.MaxPayload < 0 || c.MaxPayload > MostMaxPayload, "MaxPayload is %d: want 0 (256 MiB) to %d", c.MaxPayload, MostMaxPayload)
	return errors.Join(errs...)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{outmill.ErrInvalidConfig}, args...)...)
}
