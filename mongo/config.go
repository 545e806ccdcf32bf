package mongo

import (
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/outmill/outmill/mongo/internal/driver"
	"github.com/outmill/outmill/mongo/internal/sagas"
	"github.com/outmill/outmill/storekit"
)

// Defaults of Config.
const (
	DefaultURI         = "mongodb://localhost:27017"
	DefaultDatabase    = "outmill"
	DefaultPrefix      = "outmill_"
	DefaultDedupWindow = 24 * time.Hour
	// DefaultRetainJoins is how long a join is kept after it has ended.
	DefaultRetainJoins = 24 * time.Hour
	// DefaultRetainAudit is how long the audit keeps an entry.
	DefaultRetainAudit = storekit.AuditRetention
	// DefaultMaxPayload leaves room for the other fields of a document.
	DefaultMaxPayload = 16<<20 - 256<<10
)

// Config holds the settings of a Store. The zero value is the default.
type Config struct {
	// Name identifies the store in logs, metrics and deliveries. Default "mongo:" and the name of
	// the database.
	Name string
	// Database is the name of the database with the store's collections. Default "outmill".
	Database string
	// CollectionPrefix is the prefix of the name of every collection: outmill_records and so on.
	// Two stores with different prefixes share one database. Default "outmill_".
	CollectionPrefix string
	// CollectionName names the collections by a convention of your own, and replaces
	// CollectionPrefix. It gets the name without a prefix (records, groups, …), and must return a
	// different name for each.
	CollectionName func(name string) string
	// SagaCollection names the collection of a type of sagas. CollectionPrefix does not apply to
	// it. Default is the type's name.
	SagaCollection func(kind string) string
	// AppendLogLevel is the level of the line that each append logs: the number of records, their
	// topics and their correlation ids. nil is slog.LevelDebug; slog.LevelInfo is Info, and levels
	// below Debug are trace.
	AppendLogLevel slog.Leveler
	// Retain is how long a processed record is kept. 0 deletes it on ack. A changed setting
	// needs no Ensure.
	Retain time.Duration
	// RetainJoins is how long a join is kept after it has ended. Default 24 h.
	RetainJoins time.Duration
	// RetainAudit is how long the audit keeps what an operator did. Default 90 days.
	RetainAudit time.Duration
	// DedupWindow is how long a dedup key is remembered. Default 24 h.
	DedupWindow time.Duration
	// MaxPayload is the size in bytes of the largest accepted payload, at most the default of 16
	// MiB less 256 KiB. The whole document must not be larger than MongoDB's 16 MiB either.
	MaxPayload int
	// EmbedJSON stores a payload that is a JSON object as an embedded document, which people can
	// read and query, if the document can be written back byte for byte: compact JSON, as
	// encoding/json and JavaScript's JSON.stringify write it. All other payloads stay binary.
	// Readers accept both, whatever their setting. An append then also parses and writes the
	// JSON.
	EmbedJSON bool
	// FairTopics are the topics, or patterns of topics such as "orders.*", of which claims take as much from each of several
	// parts, so that a tenant with a large backlog does not hold up tenants of other parts. The database keeps them: the
	// first Ensure sets them, and SetFairTopics changes them. A store with other ones can neither append nor claim
	// (outmill.ErrFairTopics). Default none. See storekit.PartOf.
	FairTopics []string
	// WithoutChangeStream opens no change stream, so readers poll for appends of other processes.
	WithoutChangeStream bool
	// EnsureSchema makes the first call create the collections and indexes, as Ensure does. An
	// Append in a caller's transaction does not.
	EnsureSchema bool

	// atOnce makes the steps of large work small, for tests.
	atOnce storekit.BatchSize
	// ofCluster has the stores of the client share a change stream of the cluster. See Databases.
	ofCluster bool
}

func (c *Config) setDefaults() {
	if c.Database == "" {
		c.Database = DefaultDatabase
	}
	if c.Name == "" {
		c.Name = "mongo:" + c.Database
	}
	if c.CollectionPrefix == "" {
		c.CollectionPrefix = DefaultPrefix
	}
	if c.CollectionName == nil {
		prefix := c.CollectionPrefix
		c.CollectionName = func(name string) string { return prefix + name }
	}
	if c.SagaCollection == nil {
		c.SagaCollection = func(kind string) string { return kind }
	}
	if c.RetainJoins == 0 {
		c.RetainJoins = DefaultRetainJoins
	}
	if c.RetainAudit == 0 {
		c.RetainAudit = DefaultRetainAudit
	}
	if c.DedupWindow == 0 {
		c.DedupWindow = DefaultDedupWindow
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = DefaultMaxPayload
	}
}

// Validate reports every setting that makes no sense, each as an
// outmill.ErrInvalidConfig. Unset fields are fine.
func (c Config) Validate() error {
	check := storekit.CheckConfig("mongo.Config")
	check.Refuse(strings.ContainsAny(c.Database, "/\\. \"$*<>:|?\x00") ||
		len(c.Database) > 63, "Database is %q: want a valid name of a MongoDB database, at most 63 bytes", c.Database)
	check.Refuse(!sagas.ValidCollection(c.CollectionPrefix) &&
		c.CollectionPrefix != "", "CollectionPrefix is %q: want the beginning of a collection's name, at most 100 bytes and without $",
		c.CollectionPrefix)
	check.AppendLogLevel(c.AppendLogLevel)
	check.Duration("Retain", c.Retain, "")
	check.Duration("RetainJoins", c.RetainJoins, "24 h")
	check.Duration("RetainAudit", c.RetainAudit, "90 days")
	check.Duration("DedupWindow", c.DedupWindow, "24 h")
	check.MaxPayload(c.MaxPayload, DefaultMaxPayload, strconv.Itoa(DefaultMaxPayload))
	check.FairTopics(c.FairTopics)
	return errors.Join(check.Err(), c.checkNames())
}

// checkNames refuses a CollectionName that gives two collections one name.
func (c Config) checkNames() error {
	if c.CollectionName == nil {
		return nil
	}
	seen := map[string]string{}
	for _, name := range driver.Collections() {
		given := c.CollectionName(name)
		if !sagas.ValidCollection(given) {
			return storekit.InvalidConfig("mongo.Config.CollectionName gives %q for %s: want a collection's name, at most 100 bytes and without $",
				given, name)
		}
		if other, taken := seen[given]; taken {
			return storekit.InvalidConfig("mongo.Config.CollectionName gives %q for both %s and %s: want a name for each", given, other, name)
		}
		seen[given] = name
	}
	return nil
}
