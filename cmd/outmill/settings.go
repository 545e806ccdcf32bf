package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/outmill/outmill/tenants"
)

// settings are those of a configuration file: each flag by its name, and what no flag can say.
type settings struct {
	// URL is that of the store.
	URL string `yaml:"url"`
	// Tenants are the stores of a set, in place of URL.
	Tenants []tenant `yaml:"tenants"`
	// Discover finds the stores of a set, in place of Tenants; nil if it is not there.
	Discover *discover `yaml:"-"`
	// Limits are those of a set.
	Limits limits `yaml:"-"`
	// Flags are all others.
	Flags map[string]any `yaml:",inline"`
}

type tenant struct {
	Key string `yaml:"key"`
	URL string `yaml:"url"`
}

// readSettings reads a configuration file. "" is no file.
func readSettings(file string) (settings, error) {
	var s settings
	if file == "" {
		return s, nil
	}
	text, err := os.Open(file)
	if err != nil {
		return s, fmt.Errorf("outmill: --config: %w", err)
	}
	defer text.Close()
	decoder := yaml.NewDecoder(text)
	decoder.KnownFields(true)
	if err := decoder.Decode(&s); err != nil && !errors.Is(err, io.EOF) {
		// The parser's error may show the line, and with it a password.
		return s, usagef("--config %s is no configuration file: want YAML with one setting per line, such as \"to: kafka://host:9092\"%s",
			file, lineOf(err))
	}
	if err := s.complete(); err != nil {
		return s, usagef("--config %s: %v", file, err)
	}
	return s, nil
}

// complete reads what no flag can say, and checks that it fits together.
func (s *settings) complete() (err error) {
	value, discovers := s.Flags["discover"]
	if discovers {
		if s.Discover, err = readDiscover(value); err != nil {
			return err
		}
	}
	if s.Limits, err = readLimits(s.Flags); err != nil {
		return err
	}
	limited := slices.DeleteFunc(slices.Clone(limitNames), func(name string) bool { return s.Flags[name] == nil })
	for _, name := range append([]string{"discover"}, limitNames...) {
		delete(s.Flags, name)
	}
	set := map[string]bool{"url": s.URL != "", "source": s.source() != "", "tenants": len(s.Tenants) > 0, "discover": discovers}
	stores := slices.DeleteFunc(slices.Clone(storeSettings), func(name string) bool { return !set[name] })
	switch {
	case len(stores) > 1:
		return usagef("%s are set: want one of %s", strings.Join(stores, " and "), either(storeSettings))
	case len(limited) > 0 && len(s.Tenants) == 0 && !discovers:
		return usagef("%s is a limit of a set: want it with tenants or discover", limited[0])
	case discovers && s.Discover.kind != discoverQuery && s.Limits.maxConnections > 0:
		return usagef("max-connections is for stores with a URL each, and those of %s share the connections of one: want %s in that URL",
			s.Discover.name(), map[string]string{discoverSchemas: "pool_max_conns", discoverDatabases: "maxPoolSize"}[s.Discover.kind])
	}
	for i, t := range s.Tenants {
		if t.Key == "" || t.URL == "" {
			return usagef("the tenant number %d lacks its key or its url", i+1)
		}
	}
	return nil
}

// lineOf returns the line number in an error of the YAML parser, which begins "yaml: line 3: " or
// "yaml: unmarshal errors:\n  line 3: ".
func lineOf(err error) string {
	if found := yamlLine.FindStringSubmatch(err.Error()); found != nil {
		return " (see line " + found[1] + ")"
	}
	return ""
}

var yamlLine = regexp.MustCompile(`^yaml: (?:unmarshal errors:\s*)?line (\d+):`)

// source is the setting source.
func (s settings) source() string {
	source, _ := s.Flags["source"].(string)
	return source
}

// discovery has the tenants of the file. files is what becomes of the URLs of SQLite files.
func (s settings) discovery(files func(url string) string) tenants.Static {
	static := make(tenants.Static, len(s.Tenants))
	for i, t := range s.Tenants {
		static[i] = tenants.Tenant{Key: t.Key, URL: files(t.URL)}
	}
	return static
}

// storeSettings are the settings that name a store or a set.
var storeSettings = []string{"url", "source", "tenants", "discover"}

// forwardEnvironment is the prefix of the variables of forward.
const forwardEnvironment = environment + "_FORWARD_"

// fill sets each flag that the command line leaves out: from the environment, where the flag
// batch-size is the variable OUTMILL_FORWARD_BATCH_SIZE, else from the file.
func fill(flags *pflag.FlagSet, s settings, file string, lookup func(name string) (string, bool)) error {
	notInFile := []string{"config", "help"}
	for name := range s.Flags {
		if flags.Lookup(name) == nil || slices.Contains(notInFile, name) {
			return usagef("--config %s has the setting %.40q, which does not exist: want url, tenants, discover, "+
				"a limit of a set (%s), or the name of a flag", file, name, strings.Join(limitNames, ", "))
		}
	}
	var errs []error
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed || flag.Name == "help" {
			return
		}
		variable := forwardEnvironment + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		if value, found := lookup(variable); found && value != "" {
			if err := setFlag(flag, strings.Split(value, ","), value); err != nil {
				errs = append(errs, usagef("the variable %s: %v", variable, err))
			}
			return
		}
		value, found := s.Flags[flag.Name]
		if !found {
			return
		}
		values, err := scalars(value)
		if err == nil {
			err = setFlag(flag, values, strings.Join(values, ","))
		}
		if err != nil {
			errs = append(errs, usagef("the setting %s in %s: %v", flag.Name, file, err))
		}
	})
	return errors.Join(errs...)
}

// setFlag sets a flag to the values if it takes a list, else to the text.
func setFlag(flag *pflag.Flag, values []string, text string) error {
	if list, is := flag.Value.(pflag.SliceValue); is {
		return list.Replace(values)
	}
	return flag.Value.Set(text)
}

// scalars returns the value of a setting, or those of its list, as the flag takes it.
func scalars(value any) ([]string, error) {
	list, is := value.([]any)
	if !is {
		list = []any{value}
	}
	texts := make([]string, len(list))
	for i, v := range list {
		switch v := v.(type) {
		case string, bool, int, int64, uint64, float64:
			texts[i] = fmt.Sprint(v)
		default:
			return nil, fmt.Errorf("want a text, a number, true or false, or a list of texts")
		}
	}
	return texts, nil
}
