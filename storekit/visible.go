package storekit

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Unseen reports whether a character is one that nobody sees, or that changes how the text around
// it looks: control characters, those of C1 too, and those that reverse the direction of writing.
// Line breaks and tabs are such characters. It is for texts of users in terminals and pages.
func Unseen(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp)
}

// VisibleJSON returns a JSON text in which each character that Unseen names is an escape such as
// \u202e. The text means the same, because such characters stand in JSON only inside of strings,
// except for line breaks and tabs, which stay.
func VisibleJSON(text string) string {
	if strings.IndexFunc(text, unseenInJSON) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch high, low := utf16.EncodeRune(r); {
		case !unseenInJSON(r):
			b.WriteRune(r)
		case high == unicode.ReplacementChar:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		}
	}
	return b.String()
}

func unseenInJSON(r rune) bool { return r != '\n' && r != '\t' && r != '\r' && Unseen(r) }
