package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/outmill/outmill/storekit"
)

// output is how a command prints its result.
type output struct{ format string }

func (o *output) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.format, "output", "o", "table", "`FORMAT` of the output: table or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

// json reports whether the output is JSON.
func (o *output) json() (bool, error) {
	switch o.format {
	case "table":
		return false, nil
	case "json":
		return true, nil
	}
	return false, usagef("--output is %q: want table or json", o.format)
}

func printJSON(w io.Writer, value any) error {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return err
	}
	// A terminal obeys some characters that JSON need not escape.
	_, err := io.WriteString(w, storekit.VisibleJSON(text.String()))
	return err
}

// table prints rows with aligned columns. Columns whose names are in right are aligned to the right.
type table struct {
	header []string
	right  map[string]bool
	rows   [][]string
	// bold prints the header bold.
	bold bool
}

// withStores puts a column STORE in front, if the rows are of several stores.
func (t *table) withStores(several bool) {
	if several {
		t.header = append([]string{"STORE"}, t.header...)
	}
}

// addOf adds a row, with the name of its store if the table has that column.
func (t *table) addOf(store string, cells ...string) {
	if t.header[0] == "STORE" {
		cells = append([]string{orDash(oneLine(store, 40))}, cells...)
	}
	t.add(cells...)
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(w io.Writer) error {
	widths := make([]int, len(t.header))
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, row := range append([][]string{t.header}, t.rows...) {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString("  ")
			}
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if t.right[t.header[i]] {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
		}
		text := strings.TrimRight(line.String(), " ")
		if n == 0 && t.bold {
			text = "\x1b[1m" + text + "\x1b[0m"
		}
		b.WriteString(text + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// oneLine makes text of users safe for a terminal: control characters, and those that reverse the
// direction of writing, become spaces, and
// longer text is cut to limit characters.
func oneLine(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if storekit.Unseen(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, text)
	if runes := []rune(text); limit > 0 && len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}

// age prints a duration in its two largest units.
func age(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}

// stamp prints a time for people; "" for the zero time.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// orDash replaces empty text by a dash, so that a column is never empty.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// count prints "1 record" or "2 records".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
