package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// plain matches a value that can be compared: a number with or without a unit, true or
// false, a text in code, or none.
var plain = regexp.MustCompile("^(?:\\d+(?: (?:h|min|s|ms))?|true|false|none|`[^`]*`)$")

var setting = regexp.MustCompile("^\\| (?:store's )?`([^`]*)Config\\.([A-Za-z]+)`((?:, `[A-Za-z]+`)*) \\| ([^|]*) \\|")

// RequireDocumentedDefaults checks that docs/configuration.md lists the defaults of a
// Config of the package. It ignores settings that are not texts, numbers, durations or
// booleans, and those whose default the page describes in words.
func RequireDocumentedDefaults(t *testing.T, pkg string, store bool, config any) {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	page, err := os.ReadFile(filepath.Join(filepath.Dir(here), "..", "..", "docs", "configuration.md"))
	require.NoError(t, err)
	checked := 0
	for line := range strings.Lines(string(page)) {
		row := setting.FindStringSubmatch(line)
		if row == nil || !concerns(row[1], strings.Contains(line, "| store's "), pkg, store) {
			continue
		}
		names := append([]string{row[2]}, strings.Split(strings.Trim(strings.ReplaceAll(row[3], "`", ""), ", "), ", ")...)
		values := strings.Split(row[4], ", ")
		for i, name := range names {
			field := reflect.ValueOf(config).FieldByName(name)
			if name == "" || i >= len(values) || !plain.MatchString(values[i]) || !field.IsValid() {
				continue
			}
			if got, known := inWords(field); known {
				require.Equal(t, values[i], got, "docs/configuration.md: %s.Config.%s", pkg, name)
				checked++
			}
		}
	}
	require.NotZero(t, checked, "settings of %s that docs/configuration.md names", pkg)
}

// concerns reports whether a row is about the package: by its name, as one of all stores,
// or as one of subscriber and forwarder.
func concerns(prefix string, ofStores bool, pkg string, store bool) bool {
	switch prefix {
	case pkg + ".":
		return true
	case "":
		return ofStores && store
	case "…":
		return !store
	}
	return false
}

// inWords returns a value in the notation of the page.
func inWords(v reflect.Value) (words string, known bool) {
	switch value := v.Interface().(type) {
	case time.Duration:
		return durationInWords(value), true
	case bool, int:
		return fmt.Sprint(value), true
	case string:
		if value == "" {
			return "none", true
		}
		return "`" + value + "`", true
	}
	return "", false
}

func durationInWords(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if d >= unit.of && d%unit.of == 0 {
			return fmt.Sprintf("%d %s", d/unit.of, unit.name)
		}
	}
	return fmt.Sprint(int64(d))
}
