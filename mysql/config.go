package mysql

import (
	"cmp"
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
	// DefaultRetainJoins is how long a join is kept after its end.
	DefaultRetainJoins = 24 * time.Hour
	// DefaultRetainAudit is how long the audit keeps an entry.
	DefaultRetainAudit = storekit.AuditRetention
	// DefaultMaxPayload is far below MostMaxPayload, because the driver holds a whole append in memory more than once.
	DefaultMaxPayload = 256 << 20
	// MostMaxPayload is the largest MaxPayload: max_allowed_packet of the server is at most 1 GiB, of which 2 MiB are reserved for the other
	// columns. A server takes 16 MiB (MariaDB) or 64 MiB (MySQL) unless that setting is raised, and the store refuses what it does not take.
	MostMaxPayload = 1<<30 - 2<<20
)

// Config holds the settings of a Store. The zero value is the default.
type Config struct {
	// Name identifies the store in logs, metrics and deliveries. Open's default is "mysql:" and the database's name. New's default is "mysql".
	Name string
	// TablePrefix starts the name of every table and view. Two stores with different prefixes can share one database. It is a letter or _
	// followed by letters, digits and _, at most 40 characters in all. Default "outmill_".
	TablePrefix string
	// AppendLogLevel is the level of the line that each call logs if it appends records: how many, to which topics, with which
	// correlation ids. nil is slog.LevelDebug; slog.LevelInfo is Info, and levels below Debug are trace.
	AppendLogLevel slog.Leveler
	// Retain is how long a processed record is kept. 0 deletes it on ack.
	Retain time.Duration
	// RetainJoins is how long a join is kept after its end. Default 24 h.
	RetainJoins time.Duration
	// RetainAudit is how long the audit keeps what an operator did. Default 90 days.
	RetainAudit time.Duration
	// DedupWindow is how long a dedup key is remembered. Default 24 h.
	DedupWindow time.Duration
	// EnsureSchema makes Open call Ensure. After New, the first call outside a caller's
	// transaction does so. Default: the user calls Ensure.
	EnsureSchema bool
	// TxFromContext finds a transaction in a context that WithTx did not make, such as watermill-sql's: Adopt(sql.TxFromContext). It must
	// return a value that WithTx takes, of the database of this store. Default none.
	TxFromContext func(ctx context.Context) (tx any, ok bool)
	// FairTopics are the topics, or patterns of topics such as "orders.*", of which claims take as much from each of several
	// parts, so that a tenant with a large backlog does not hold up tenants of other parts. The database keeps them: the
	// first Ensure sets them, and SetFairTopics changes them. A store with other ones can neither append nor claim
	// (outmill.ErrFairTopics). Default none. See storekit.PartOf.
	FairTopics []string
	// MaxPayload is the largest size of a payload in bytes, at most MostMaxPayload. Default 256 MiB.
	MaxPayload int

	// atOnce makes the steps of large work small, for tests.
	atOnce storekit.BatchSize
}

// Adopt makes a Config.TxFromContext of a function that returns a transaction of a specific type, such as a *sql.Tx.
func Adopt[T any](from func(ctx context.Context) (T, bool)) func(ctx context.Context) (any, bool) {
	return sqlkit.Adopt(from)
}

var prefixPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,39}$`)

func (c *Config) setDefaults() {
	c.Name = cmp.Or(c.Name, "mysql")
	c.TablePrefix = cmp.Or(c.TablePrefix, DefaultTablePrefix)
	c.RetainJoins = cmp.Or(c.RetainJoins, DefaultRetainJoins)
	c.RetainAudit = cmp.Or(c.RetainAudit, DefaultRetainAudit)
	c.DedupWindow = cmp.Or(c.DedupWindow, DefaultDedupWindow)
	c.MaxPayload = cmp.Or(c.MaxPayload, DefaultMaxPayload)
}

// Validate returns an outmill.ErrInvalidConfig for every invalid setting, joined. Unset fields are valid.
func (c Config) Validate() error {
	check := storekit.CheckConfig("mysql.Config")
	check.Refuse(c.TablePrefix != "" &&
		!prefixPattern.MatchString(c.TablePrefix), "TablePrefix is %q: want a letter or _, then letters, digits and _, at most 40", c.TablePrefix)
	check.AppendLogLevel(c.AppendLogLevel)
	check.Duration("Retain", c.Retain, "")
	check.Duration("RetainJoins", c.RetainJoins, "24 h")
	check.Duration("RetainAudit", c.RetainAudit, "90 days")
	check.Duration("DedupWindow", c.DedupWindow, "24 h")
	check.FairTopics(c.FairTopics)
	check.MaxPayload(c.MaxPayload, MostMaxPayload, "256 MiB")
	return check.Err()
}
