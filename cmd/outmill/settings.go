package main

import (
	"errors"
	"fmt"
	"io"
	"os"
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
	if s.URL != "" && len(s.Tenants) > 0 {
		return s, usagef("--config %s has url and tenants: want one of them", file)
	}
	for i, t := range s.Tenants {
		if t.Key == "" || t.URL == "" {
			return s, usagef("--config %s: the tenant number %d lacks its key or its url", file, i+1)
		}
	}
	return s, nil
}

// lineOf returns the line number in an error of the YAML parser, which begins "yaml: line 3: ".
func lineOf(err error) string {
	var n int
	if _, scanErr := fmt.Sscanf(err.Error(), "yaml: line %d:", &n); scanErr != nil {
		return ""
	}
	return fmt.Sprintf(" (see line %d)", n)
}

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

// forwardEnvironment is the prefix of the variables of forward.
const forwardEnvironment = environment + "_FORWARD_"

// fill sets each flag that the command line leaves out: from the environment, where the flag
// batch-size is the variable OUTMILL_FORWARD_BATCH_SIZE, else from the file.
func fill(flags *pflag.FlagSet, s settings, file string, lookup func(name string) (string, bool)) error {
	notInFile := []string{"config", "help"}
	for name := range s.Flags {
		if flags.Lookup(name) == nil || slices.Contains(notInFile, name) {
			return usagef("--config %s has the setting %.40q, which does not exist: want url, tenants, or the name of a flag", file, name)
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
