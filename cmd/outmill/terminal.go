package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
)

// terminal is where the tool reads and writes.
type terminal struct {
	in       io.Reader
	out, err io.Writer
	// secrets are what no error may show; nil is none.
	secrets func() *secrets
}

// hide returns the text of an error without passwords.
func (t terminal) hide(text string) string {
	if t.secrets == nil {
		return text
	}
	return t.secrets().hide(text)
}

// log returns the writer of a log, which gets whole lines.
func (t terminal) log() io.Writer {
	if t.secrets == nil {
		return t.err
	}
	return hiding{t.err, t.secrets}
}

// isTerminal reports whether a person sits at the other end.
func isTerminal(stream any) bool {
	file, is := stream.(*os.File)
	return is && isatty.IsTerminal(file.Fd())
}

// colours reports whether the output may have colours. See https://no-color.org.
func (t terminal) colours() bool {
	return isTerminal(t.out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// confirm asks a question before a change that cannot be undone. The sentence describes the
// change, for example "This deletes 12 records of sqlite:orders.db."
func (t terminal) confirm(sentence string, yes bool) error {
	if yes {
		return nil
	}
	if !isTerminal(t.in) {
		return usagef("%s Nobody can be asked, because the standard input is no terminal: look with --dry-run, then repeat it with --yes",
			sentence)
	}
	return ask(t.in, t.err, sentence)
}

func ask(in io.Reader, out io.Writer, sentence string) error {
	fmt.Fprintf(out, "%s Continue? [y/N] ", sentence)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && answer == "" {
		return fmt.Errorf("outmill: read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return fmt.Errorf("outmill: nothing was changed, because the answer was not yes")
}
