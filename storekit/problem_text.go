package storekit

import (
	"strings"
	"unicode/utf8"
)

// RepeatedProblem is the begin of the text of a problem that a worker reports of a record that comes
// again and again without an attempt. See outmill.Registration.Problems.
const RepeatedProblem = "comes again and again: "

// ProblemText returns the text as a registration can report it: without what a store cannot keep,
// and cut to MaxProblemText.
func ProblemText(text string) string { return cutText(text, MaxProblemText) }

func cutText(text string, most int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	// A character of UTF-8 takes at most one unit of UTF-16 for each of its bytes.
	for len(text) > most {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}
