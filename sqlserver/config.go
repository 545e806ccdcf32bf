package sqlserver

import (
	"cmp"
	"context"
	"log/slog"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Defaults of Config.
const (
	DefaultSchema      = "dbo"
	DefaultTable       = "Outbox"
	DefaultDedupWindow = 24 * time.Hour
	// DefaultRetainJoins is how long a join is kept after it has ended.
	DefaultRetainJoins = 24 * time.Hour
	// DefaultRetainAudit is how long the audit keeps an entry.
	DefaultRetainAudit = storekit.AuditRetention
	// DefaultMaxPayload is far below MostMaxPayload, because the driver holds a whole
	// append in memory more than once.
	DefaultMaxPayload = 256 << 20
	// MostMaxPayload is the largest MaxPayload: the limit of VARBINARY(MAX) is 2 GiB, of which 1
	// MiB is reserved for the other columns.
	MostMaxPayload = 1<<31 - 1<<20
)

// Config holds the settings of a Store. The zero value is the default.
type Config struct {
	// Name identifies the store in logs, metrics and deliveries. Open's default is "sqlserver:"
	// and the database's name, followed by "/" and the Schema if that is not the default. New's
	// default is "sqlserver".
	Name string
	// Schema is the schema of the tables: a letter or _, then letters, digits and _, at most 100
	// characters. Default "dbo".
	Schema string
	// Table is the name of the table of records, and begins all other names: Outbox, OutboxNote,
	// OutboxEntry, Outbox_Claim and so on. Two stores with different tables share one schema. The
	// limits are those of Schema. Default "Outbox".
	Table string
	// AppendLogLevel is the level of the line that each append logs: the number of records, their
	// topics and their correlation ids. nil is slog.LevelDebug; slog.LevelInfo is Info, and levels
	// below Debug are trace.
	AppendLogLevel slog.Leveler
	// Retain is how long a processed record is kept. 0 deletes it on ack.
	Retain time.Duration
	// RetainJoins is how long a join is kept after it has ended. Default 24 h.
	RetainJoins time.Duration
	// RetainAudit is how long the audit keeps what an operator did. Default 90 days.
	RetainAudit time.Duration
	// DedupWindow is how long a dedup key is remembered. Default 24 h.
	DedupWindow time.Duration
	// MaxPayload is the size in bytes of the largest accepted payload, at most MostMaxPayload.
	// Default 256 MiB.
	MaxPayload int
	// FairTopics are the topics, or patterns of topics such as "orders.*", of which claims take as much from each of several
	// parts, so that a tenant with a large backlog does not hold up tenants of other parts. The database keeps them: the
	// first Ensure sets them, and SetFairTopics changes them. A store with other ones can neither append nor claim
	// (outmill.ErrFairTopics). Default none. See storekit.PartOf.
	FairTopics []string
	// EnsureSchema makes Open call Ensure. After New, the first call that is not in a caller's
	// transaction does what Ensure does. Default: call Ensure explicitly.
	EnsureSchema bool
	// TxFromContext returns the transaction of a context that WithTx did not make, such as
	// watermill-sql's: Adopt(sql.TxFromContext). The transaction must be one that WithTx accepts,
	// in the database of this store. Default none.
	TxFromContext func(ctx context.Context) (tx any, ok bool)

	// atOnce makes the steps of large work small, for tests.
	atOnce storekit.BatchSize
}

// Adopt makes a Config.TxFromContext from a function such as the TxFromContext of watermill-sql,
// v3 or v4.
func Adopt[T any](from func(ctx context.Context) (T, bool)) func(ctx context.Context) (any, bool) {
	return sqlkit.Adopt(from)
}

// namePattern allows only names that the driver accepts in the name of a table type, because it
// splits these at dots.
var namePattern = regexp.MustCompile(`^([\p{L}_][\p{L}\p{N}_]*)?$`)

// isName is separate from the pattern, because a pattern of 100 characters takes milliseconds and
// megabytes at the start of each program that links this package.
func isName(name string) bool {
	return namePattern.MatchString(name) && utf8.RuneCountInString(name) <= 100
}

func (c *Config) setDefaults() {
	c.Name = cmp.Or(c.Name, "sqlserver")
	c.Schema = cmp.Or(c.Schema, DefaultSchema)
	c.Table = cmp.Or(c.Table, DefaultTable)
	c.RetainJoins = cmp.Or(c.RetainJoins, DefaultRetainJoins)
	c.RetainAudit = cmp.Or(c.RetainAudit, DefaultRetainAudit)
	c.DedupWindow = cmp.Or(c.DedupWindow, DefaultDedupWindow)
	c.MaxPayload = cmp.Or(c.MaxPayload, DefaultMaxPayload)
}

// Validate reports every setting that makes no sense, each as an
// outmill.ErrInvalidConfig. Unset fields are fine.
func (c Config) Validate() error {
	check := storekit.CheckConfig("sqlserver.Config")
	check.Refuse(!isName(c.Schema), "Schema is %q: want a letter or _, then letters, digits and _, at most 100", c.Schema)
	check.Refuse(!isName(c.Table), "Table is %q: want a letter or _, then letters, digits and _, at most 100", c.Table)
	check.FairTopics(c.FairTopics)
	check.AppendLogLevel(c.AppendLogLevel)
	check.Duration("Retain", c.Retain, "")
	check.Duration("RetainJoins", c.RetainJoins, "24 h")
	check.Duration("RetainAudit", c.RetainAudit, "90 days")
	check.Duration("DedupWindow", c.DedupWindow, "24 h")
	check.MaxPayload(c.MaxPayload, MostMaxPayload, "256 MiB")
	return check.Err()
}
