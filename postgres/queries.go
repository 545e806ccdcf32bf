package postgres

import (
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

// queries converts the templates of this package to SQL for one schema and table prefix.
// {p:records} is the qualified name of the table records, {i:line} the bare name of an index,
// for CREATE INDEX, {q:…} the qualified name as a text, and {c:notify} the name of the channel
// as a text.
type queries struct {
	schema, prefix string
	expanded       sync.Map
}

var placeholder = regexp.MustCompile(`\{([cipq]):([a-z0-9_]+)\}`)

func (q *queries) text(template string) string {
	if text, ok := q.expanded.Load(template); ok {
		return text.(string)
	}
	text := q.expand(template)
	q.expanded.Store(template, text)
	return text
}

func (q *queries) expand(template string) string {
	return placeholder.ReplaceAllStringFunc(template, func(found string) string {
		match := placeholder.FindStringSubmatch(found)
		name := q.prefix + match[2]
		qualified := pgx.Identifier{q.schema, name}.Sanitize()
		switch match[1] {
		case "c":
			return "'" + q.channel(match[2]) + "'"
		case "i":
			return pgx.Identifier{name}.Sanitize()
		case "q":
			return "'" + strings.ReplaceAll(qualified, "'", "''") + "'"
		}
		return qualified
	})
}

// channel returns the name of a channel of LISTEN and NOTIFY. Its length is limited like that
// of other identifiers.
func (q *queries) channel(of string) string {
	return "outmill_" + strconv.FormatUint(uint64(q.lockOf(of)), 36)
}

// lockOf is the number of an advisory lock of this schema and prefix.
func (q *queries) lockOf(parts ...string) int64 {
	hash := fnv.New64a()
	for _, part := range append([]string{"outmill", q.schema, q.prefix}, parts...) {
		_, _ = hash.Write([]byte(part))
		_, _ = hash.Write([]byte{0})
	}
	return int64(hash.Sum64())
}

// Each of the conditions below fits one index, so that the planner has no choice. With missing
// or old statistics it chooses badly, and it uses a plan that was cached while a table was
// empty for a while. IS NOT DISTINCT FROM compares without an index. A partial index is used
// only if a query repeats its condition literally.

// ofKey is true for records of the group $1, the topic $2 and a key.
func ofKey(key string) string {
	return `hashtextextended(key, hashtextextended(topic, 0)) = hashtextextended(` + key + `, hashtextextended($2::text, 0))
		AND grp IS NOT DISTINCT FROM $1::text AND topic IS NOT DISTINCT FROM $2::text AND key IS NOT DISTINCT FROM ` + key
}

const (
	// waitingOfTopic is true for records of the group $1 and the topic $2 that wait for a
	// retry.
	waitingOfTopic = `hashtextextended(topic, 0) = hashtextextended($2::text, 0)
		AND topic IS NOT DISTINCT FROM $2::text AND grp IS NOT DISTINCT FROM $1::text AND stage - 2 = 0`

	// ofLine is true for lanes of the group $1 and the topic $2. It is for searches by blocker.
	ofLine = `hashtextextended(topic, hashtextextended(grp, 0)) = hashtextextended($2::text, hashtextextended($1::text, 0))
		AND grp IS NOT DISTINCT FROM $1::text AND topic IS NOT DISTINCT FROM $2::text`

	// overdue is true for lanes of the group $1 and the topic $2 whose time of the next check
	// has come.
	overdue = `hashtextextended(grp, hashtextextended(topic, 0)) = hashtextextended($1::text, hashtextextended($2::text, 0))
		AND grp IS NOT DISTINCT FROM $1::text AND topic IS NOT DISTINCT FROM $2::text AND until <= statement_timestamp()`
)

// noneOf is NOT EXISTS for one outer row. PostgreSQL may answer NOT EXISTS for all outer rows
// at once, by reading the whole table.
func noneOf(from string) string { return `(SELECT 1 FROM ` + from + ` LIMIT 1) IS NULL` }

// anyOf is EXISTS in the same way. Without a reference to outer rows it is evaluated once.
func anyOf(from string) string { return `(SELECT 1 FROM ` + from + ` LIMIT 1) IS NOT NULL` }
