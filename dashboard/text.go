package dashboard

import (
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/outmill/outmill/storekit"
)

// clean shows characters of users' texts that would change how the text around them looks, such
// as those that reverse the direction of writing, as U+FFFD.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !storekit.Unseen(r) {
			return r
		}
		return unicode.ReplacementChar
	}, strings.ToValidUTF8(text, string(unicode.ReplacementChar)))
}

// cut returns the first n characters, and "…" if there are more.
func cut(text string, n int) string {
	count := 0
	for i := range text {
		if count == n {
			// What is cut off is not looked at, however long it is.
			return clean(text[:i]) + "…"
		}
		count++
	}
	return clean(text)
}

// number writes 12345 as "12,345".
func number(n int) string {
	text, minus := strings.CutPrefix(strconv.Itoa(n), "-")
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	if minus {
		return "−" + text
	}
	return text
}

// upTo writes a count that ends at the limit.
func upTo(n, limit int) string {
	if n >= limit {
		return number(limit) + "+"
	}
	return number(n)
}

// age writes a duration with its two largest units.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s"
	case d < time.Second:
		return strconv.Itoa(int(d.Milliseconds())) + " ms"
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + " s"
	case d < time.Hour:
		return units(d, time.Minute, "min", time.Second, "s")
	case d < 24*time.Hour:
		return units(d, time.Hour, "h", time.Minute, "min")
	}
	return units(d, 24*time.Hour, "d", time.Hour, "h")
}

func units(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := strconv.Itoa(int(d/large)) + " " + largeName
	if rest := int(d % large / small); rest > 0 {
		text += " " + strconv.Itoa(rest) + " " + smallName
	}
	return text
}

// ago writes how far a time is from now.
func ago(t, now time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return "never"
	case d < -time.Second:
		return "in " + age(-d)
	case d < time.Second:
		return "now"
	default:
		return age(d) + " ago"
	}
}
