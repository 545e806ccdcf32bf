package driver

import (
	_ "embed"
	"regexp"
	"strconv"
	"strings"
)

//go:embed log_driver.sql
var logFunctions string

//go:embed log_readable.sql
var logReadable string

const (
	// logSegments is the number of segments, and insertInto begins the names of the appends to one. oneInto begins those of a single row.
	logSegments = 3
	insertInto  = "log_insert_"
	oneInto     = "log_insert_one_"
)

// addLogTemplates adds the appends to each segment.
func addLogTemplates(all map[string]string) {
	const insert = "log_insert"
	check := strings.Replace(all["log_check"], "/* outmill log_check */ ", "", 1)
	for n := range logSegments {
		text := strings.NewReplacer("{segment}", strconv.Itoa(n), "{checked}", check).Replace(all[insert])
		all[insertInto+strconv.Itoa(n)], all[oneInto+strconv.Itoa(n)] = text, ofOne(text)
	}
	delete(all, insert)
}

// unnested is a list of an append.
var unnested = regexp.MustCompile(`pg_catalog\.unnest\(([^()]+)\[\]\)`)

// ofOne is the append of a list as that of one row, whose values are the items of its lists: lists take half as much again.
func ofOne(insert string) string {
	before, rest, found := strings.Cut(insert, "ROWS FROM (")
	lists, after, ends := strings.Cut(rest, ") WITH ORDINALITY AS u (")
	if !found || !ends {
		panic("the append of the log has no lists")
	}
	return before + "(VALUES (" + unnested.ReplaceAllString(lists, "$1") + ", 1)) AS u (" + after
}
