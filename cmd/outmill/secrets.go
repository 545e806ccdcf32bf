package main

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/cmd/outmill/internal/jetstream"
)

// secrets are the passwords that came with the arguments, the environment and the configuration
// file. Every error and every line of the log passes through hide, because what is in a wrong place
// is quoted as what was wanted there: a URL as a flag, or half a password as a parameter.
type secrets struct {
	values []secretValue
	// pieces are the parts of passwords that a parser may cut out.
	pieces []*regexp.Regexp
}

// secretValue is a text with a password, and what may be shown of it.
type secretValue struct{ text, shown string }

// largestConfig is how much of a configuration file is searched, in bytes.
const largestConfig = 1 << 20

// findSecrets returns a function that looks for the secrets once, at the first error.
func findSecrets(args, environ []string) func() *secrets {
	return sync.OnceValue(func() *secrets {
		var s secrets
		for _, arg := range args {
			_, value, _ := strings.Cut(arg, "=")
			s.add(arg)
			s.add(value)
		}
		for _, variable := range environ {
			name, value, _ := strings.Cut(variable, "=")
			switch ours := strings.HasPrefix(name, environment+"_"); {
			case urlStart.MatchString(value), ours && !secretName.MatchString(name):
				s.add(value)
			case ours:
				s.addPieces(value, "")
			}
		}
		for _, file := range configFiles(args) {
			for line := range strings.Lines(beginningOf(file)) {
				for _, at := range urlStart.FindAllStringIndex(line, -1) {
					s.add(strings.TrimRight(line[at[0]:], "\r\n\t '\"}],"))
				}
			}
		}
		return &s
	})
}

var (
	urlStart   = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://`)
	secretName = regexp.MustCompile(`(?i)pass|pwd|secret|token`)
)

// add takes the password out of a text that may be a URL, or has one in it.
func (s *secrets) add(text string) {
	for _, url := range slices.Compact([]string{text, strings.TrimLeft(text, "-"), text[startOfURL(text):]}) {
		shown := shownURL(url)
		if shown == url || shown == outmill.RedactURL("") {
			continue
		}
		s.values = append(s.values, secretValue{url, shown})
		begin := commonPrefix(url, shown)
		end := len(url) - commonPrefix(reversed(url[begin:]), reversed(shown[begin:]))
		s.addPieces(url[begin:end], shown)
	}
}

func startOfURL(text string) int {
	if at := urlStart.FindStringIndex(text); at != nil {
		return at[0]
	}
	return 0
}

// shownURL is what may be shown of a URL.
func shownURL(url string) string {
	switch scheme, _, _ := strings.Cut(url, "://"); strings.ToLower(scheme) {
	case "nats", "tls", "ws", "wss":
		// The user may be a token.
		return jetstream.Redact(url)
	}
	return outmill.RedactURL(url)
}

// addPieces takes the parts of a password that a parser may cut out. Shorter ones, and those that
// may be shown anyway, would make errors hard to read and tell little.
func (s *secrets) addPieces(password, shown string) {
	const shortest = 4
	pieces := strings.FieldsFunc(password, func(r rune) bool { return strings.ContainsRune(":/?#&=@,;'\" []{}", r) })
	for _, piece := range append(pieces, password) {
		if len(piece) >= shortest && !strings.Contains(shown, piece) {
			s.pieces = append(s.pieces, regexp.MustCompile(`(?i)`+regexp.QuoteMeta(piece)))
		}
	}
}

// hide returns the text without passwords.
func (s *secrets) hide(text string) string {
	for _, v := range s.values {
		text = withoutSecret(text, v.text, v.shown)
		text = withoutSecret(text, strings.Trim(strconv.Quote(v.text), `"`), v.shown)
		text = withoutSecret(text, strings.ToUpper(v.text), strings.ToUpper(v.shown))
	}
	for _, piece := range s.pieces {
		text = piece.ReplaceAllString(text, outmill.RedactURL(""))
	}
	return text
}

// hiding is a writer that gets whole lines, such as that of a log, and writes them without passwords.
type hiding struct {
	io.Writer
	secrets func() *secrets
}

func (h hiding) Write(line []byte) (int, error) {
	if _, err := io.WriteString(h.Writer, h.secrets().hide(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}

// configFiles are the arguments of --config.
func configFiles(args []string) (files []string) {
	for i, arg := range args {
		if file, found := strings.CutPrefix(arg, "--config="); found {
			files = append(files, file)
		} else if arg == "--config" && i+1 < len(args) {
			files = append(files, args[i+1])
		}
	}
	return files
}

// beginningOf returns "" for a file that cannot be read: the command says why.
func beginningOf(file string) string {
	// A pipe can be read once only, and the command needs it.
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, largestConfig))
	if err != nil {
		return ""
	}
	return string(text)
}

// withoutSecret replaces the secret, and each part of it that was cut off behind the beginning of
// the password.
func withoutSecret(text, secret, shown string) string {
	public := commonPrefix(secret, shown)
	var b strings.Builder
	for {
		i := strings.Index(text, secret[:public])
		if i < 0 || public == 0 {
			return b.String() + text
		}
		n := commonPrefix(text[i:], secret)
		b.WriteString(text[:i])
		if n > public {
			b.WriteString(shown)
		} else {
			b.WriteString(text[i : i+n])
		}
		text = text[i+n:]
	}
}

func commonPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func reversed(text string) string {
	bytes := []byte(text)
	slices.Reverse(bytes)
	return string(bytes)
}
