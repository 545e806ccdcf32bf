// Package catalog has the mutants of the project: small changes of its code, each of which breaks one promise of docs/spec.md or
// one default of docs/configuration.md. The tests that bear the promise's number must fail with it. Command mutants runs them.
package catalog

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

//go:embed rows/*.txt
var rows embed.FS

// DefaultsTest is in the name of each test that compares the defaults of a package with docs/configuration.md.
const DefaultsTest = "the defaults that docs/configuration.md names"

// Kind says why a promise has no mutant.
type Kind string

// The reasons for which a promise may have no mutant.
const (
	// Documentation says that the promise is about the reader's own program, so that no test can show it.
	Documentation Kind = "documentation"
	// Measured says that a benchmark measures it.
	Measured Kind = "measured"
	// Engine says that only an engine that is not free shows it.
	Engine Kind = "engine"
)

// Mutant is one change of the code. It belongs to its catalog and must not be changed.
type Mutant struct {
	// Key is the number of a promise, such as OBX-001, or "default " and the name of a setting as docs/configuration.md writes it.
	Key string
	// Words say in a few words what the change breaks.
	Words string
	// File is the changed file, from the root of the checkout.
	File string
	// Packages have the tests that must notice, such as ./sqlite.
	Packages []string
	// Bears is the text that the names of these tests contain.
	Bears string
	// Old and New are whole lines, each with its end.
	Old, New string
	// Place is the line of the catalog that begins the mutant.
	Place string
}

// Exception is a promise without a mutant.
type Exception struct {
	Key, Place string
	Kind       Kind
	Why        string
}

// Catalog is all mutants, in the order of their files.
type Catalog struct {
	Mutants    []*Mutant
	Exceptions []Exception
}

// Load returns the project's mutants. An error names the line that cannot be read.
func Load() (*Catalog, error) {
	names, err := fs.Glob(rows, "rows/*.txt")
	if err != nil {
		return nil, err
	}
	all := &Catalog{}
	for _, name := range names {
		text, err := rows.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if err := all.parse(path.Base(name), string(text)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// parse adds the mutants of one file. A block of lines is one mutant; an empty line ends it, and # begins a comment.
func (c *Catalog) parse(name, text string) error {
	var block []string
	begin := 0
	flush := func() error {
		lines := block
		block = nil
		if len(lines) == 0 {
			return nil
		}
		if err := c.add(fmt.Sprintf("%s:%d", name, begin), lines); err != nil {
			return fmt.Errorf("internal/mutants/catalog/rows/%s:%d: %w", name, begin, err)
		}
		return nil
	}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "":
			if err := flush(); err != nil {
				return err
			}
		case strings.HasPrefix(line, "#"):
		default:
			if len(block) == 0 {
				begin = number
			}
			block = append(block, line)
		}
	}
	return flush()
}

func (c *Catalog) add(place string, lines []string) error {
	key, words, ok := strings.Cut(lines[0], ": ")
	if !ok {
		return fmt.Errorf("the first line of a block is the key, a colon and what the mutant breaks, and this one is %q", lines[0])
	}
	if kind, why, ok := strings.Cut(words, ": "); ok && strings.HasPrefix(kind, "no mutant, ") {
		if len(lines) > 1 {
			return fmt.Errorf("%s has no mutant, and a change: remove one of them", key)
		}
		return c.except(Exception{Key: key, Place: place, Kind: Kind(strings.TrimPrefix(kind, "no mutant, ")), Why: why})
	}
	m := &Mutant{Key: key, Words: words, Place: place, Bears: key}
	if strings.HasPrefix(key, "default ") {
		m.Bears = DefaultsTest
	}
	for i, line := range lines[1:] {
		switch name, value, _ := strings.Cut(line, ": "); name {
		case "file":
			m.File = value
		case "tests":
			m.Packages = strings.Fields(value)
		case "bears":
			m.Bears = value
		default:
			return c.finish(m, lines[1+i:])
		}
	}
	return c.finish(m, nil)
}

func (c *Catalog) except(e Exception) error {
	switch e.Kind {
	case Documentation, Measured, Engine:
		c.Exceptions = append(c.Exceptions, e)
		return nil
	}
	return fmt.Errorf("%s has no mutant for the reason %q: the reasons are documentation, measured and engine", e.Key, e.Kind)
}

// finish reads the change, which is written as a diff writes it.
func (c *Catalog) finish(m *Mutant, hunk []string) error {
	var before, after strings.Builder
	for _, line := range hunk {
		if line[0] == ' ' || line[0] == '-' {
			before.WriteString(line[1:] + "\n")
		}
		if line[0] == ' ' || line[0] == '+' {
			after.WriteString(line[1:] + "\n")
		}
		if !strings.ContainsAny(line[:1], " -+") {
			return fmt.Errorf("%s: a line of a change begins with a blank, - or +, and this one does not: %q", m.Key, line)
		}
	}
	m.Old, m.New = before.String(), after.String()
	switch {
	case m.File == "" || len(m.Packages) == 0:
		return fmt.Errorf("%s: a mutant needs a line with its file and one with its tests", m.Key)
	case m.Old == "" || m.Old == m.New:
		return fmt.Errorf("%s: the mutant changes nothing", m.Key)
	}
	c.Mutants = append(c.Mutants, m)
	return nil
}

// Apply returns the file's text with the change. It is an error if the old lines do not stand exactly once in the text.
func (m *Mutant) Apply(text string) (string, error) {
	var places []int
	for at := 0; at < len(text); at = lineAfter(text, at) {
		if strings.HasPrefix(text[at:], m.Old) {
			places = append(places, at)
		}
	}
	switch len(places) {
	case 1:
		return text[:places[0]] + m.New + text[places[0]+len(m.Old):], nil
	case 0:
		return "", fmt.Errorf("%s (%s): %s does not have the lines that the mutant changes: write the mutant again for the code as it is now",
			m.Key, m.Place, m.File)
	default:
		return "", fmt.Errorf("%s (%s): %s has the lines that the mutant changes %d times: add lines around them, with a blank in front, "+
			"until they are there once", m.Key, m.Place, m.File, len(places))
	}
}

// lineAfter returns the begin of the next line.
func lineAfter(text string, at int) int {
	if end := strings.IndexByte(text[at:], '\n'); end >= 0 {
		return at + end + 1
	}
	return len(text)
}
