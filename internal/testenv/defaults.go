package testenv

import (
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/mutants/catalog"
)

// products are the names under which docs/configuration.md has the stores, where their defaults differ.
var products = map[string]string{
	"postgres": "PostgreSQL", "sqlite": "SQLite", "sqlserver": "SQL Server", "mysql": "MySQL", "mongo": "MongoDB",
}

// RequireDocumentedDefaults checks that docs/configuration.md lists the defaults of a
// Config of the package. It ignores settings that are not texts, numbers, durations or
// booleans, and those whose default the page describes in words.
func RequireDocumentedDefaults(t *testing.T, pkg string, store bool, config any) {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	settings, err := catalog.Settings(filepath.Join(filepath.Dir(here), "..", ".."))
	require.NoError(t, err)
	checked := 0
	for _, setting := range settings {
		field := reflect.ValueOf(config).FieldByName(setting.Field())
		if !concerns(setting.Package(), pkg, store) || !field.IsValid() {
			continue
		}
		if want, known := read(ofProduct(setting.Default, products[pkg]), field.Interface()); known {
			require.Equal(t, want, field.Interface(), "docs/configuration.md: %s of %s", setting.Name, pkg)
			checked++
		}
	}
	require.NotZero(t, checked, "settings of %s that docs/configuration.md names", pkg)
}

// concerns reports whether a setting is one of the package: by its name, as one of all stores,
// or as one of subscriber and forwarder.
func concerns(of, pkg string, store bool) bool {
	switch of {
	case "":
		return store
	case "…":
		return !store
	}
	return of == pkg
}

// ofProduct returns the part of a default that is about the product, if it has one for each.
func ofProduct(words, product string) string {
	for part := range strings.SplitSeq(words, ", ") {
		if value, of, ok := strings.Cut(part, " on "); ok && of == product {
			return value
		}
	}
	return words
}

// amount is a number with or without a unit, and what follows a colon.
var amount = regexp.MustCompile(`^([\d,.]+)(?: (days|h|min|s|ms|MiB|MB))?(?:$|:)`)

var units = map[string]float64{
	"": 1, "MiB": 1 << 20, "MB": 1e6, "days": float64(24 * time.Hour),
	"h": float64(time.Hour), "min": float64(time.Minute), "s": float64(time.Second), "ms": float64(time.Millisecond),
}

// read returns the value that the words of the page mean, with the type of like.
func read(words string, like any) (value any, known bool) {
	n, isNumber := 0.0, false
	if found := amount.FindStringSubmatch(words); found != nil {
		var err error
		n, err = strconv.ParseFloat(strings.ReplaceAll(found[1], ",", ""), 64)
		n, isNumber = n*units[found[2]], err == nil
	}
	switch like.(type) {
	case time.Duration:
		return time.Duration(n), isNumber
	case int:
		return int(n), isNumber
	case float64:
		return n, isNumber
	case bool:
		return words == "true", words == "true" || words == "false"
	case string:
		text := strings.Trim(words, "`")
		if words == "none" {
			return "", true
		}
		return text, "`"+text+"`" == words
	}
	return nil, false
}
