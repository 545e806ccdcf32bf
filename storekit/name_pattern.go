package storekit

import "github.com/outmill/outmill"

// NamePattern returns a function that tells whether the name of a schema or database matches a
// pattern of a discovery: * stands for any characters, also for none, and \* and \\ for * and \
// themselves. All other characters stand for themselves, so no name needs quoting. An empty
// pattern is an outmill.ErrInvalidConfig, which names the field.
func NamePattern(field, pattern string) (matches func(name string) bool, err error) {
	if pattern == "" {
		return nil, InvalidConfig("%s is empty: want a name with *, such as tenant_*; * alone matches all", field)
	}
	return outmill.Topics{Include: []string{pattern}}.Matcher(), nil
}
