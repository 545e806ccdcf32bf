package catalog

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Promise is a row of docs/spec.md.
type Promise struct {
	// Number is such as OBX-001.
	Number string
	// TestedBy are the packages that the row names.
	TestedBy []string
}

var (
	specRow    = regexp.MustCompile(`(?m)^\| (OBX-\d{3}) \| .+ \| (.*) \|$`)
	inCode     = regexp.MustCompile("`([^`]*)`")
	settingRow = regexp.MustCompile("(?m)^\\| ((?:store's )?`[^|]*Config\\.[^|]*) \\| ([^|]*) \\|")
)

// Promises returns the rows of docs/spec.md in their order. root is the directory of the checkout.
func Promises(root string) ([]Promise, error) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "spec.md"))
	if err != nil {
		return nil, err
	}
	var promises []Promise
	for _, row := range specRow.FindAllStringSubmatch(string(page), -1) {
		promise := Promise{Number: row[1]}
		for _, found := range inCode.FindAllStringSubmatch(row[2], -1) {
			promise.TestedBy = append(promise.TestedBy, found[1])
		}
		promises = append(promises, promise)
	}
	return promises, nil
}

// Setting is a setting with its default, as docs/configuration.md has them.
type Setting struct {
	// Name is such as subscriber.Config.Lease; Config.Retain for one of all stores, and …Config.Worker for one of all workers.
	Name string
	// Default is what the page says of this setting; what it says of all settings of the row, if it does not tell them apart.
	Default string
}

// Package returns the package of the setting, which is empty for one of all stores, and … for one of all workers.
func (s Setting) Package() string {
	before, _, _ := strings.Cut(s.Name, "Config.")
	return strings.TrimSuffix(before, ".")
}

// Field returns the field of the package's Config.
func (s Setting) Field() string {
	_, field, _ := strings.Cut(s.Name, "Config.")
	return field
}

// Zero reports whether the default is the zero value of its type, so that no code makes it.
func (s Setting) Zero() bool {
	value, _, _ := strings.Cut(s.Default, ":")
	return slices.Contains([]string{"none", "false", "0", "`KeyBlock`"}, value)
}

// Settings returns the settings of docs/configuration.md in their order.
func Settings(root string) ([]Setting, error) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "configuration.md"))
	if err != nil {
		return nil, err
	}
	var settings []Setting
	for _, row := range settingRow.FindAllStringSubmatch(string(page), -1) {
		names := inCode.FindAllStringSubmatch(row[1], -1)
		values := strings.Split(row[2], ", ")
		prefix, _, _ := strings.Cut(names[0][1], "Config.")
		for i, found := range names {
			setting := Setting{Name: found[1], Default: row[2]}
			if strings.HasSuffix(setting.Name, "=") {
				continue // It is the same setting in a URL.
			}
			if !strings.Contains(setting.Name, "Config.") {
				setting.Name = prefix + "Config." + setting.Name
			}
			if len(values) == len(names) {
				setting.Default = values[i]
			}
			settings = append(settings, setting)
		}
	}
	return settings, nil
}
