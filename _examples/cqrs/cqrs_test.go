package main

import (
	"testing"

	"github.com/outmill/outmill/_examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

func TestCQRS(t *testing.T) {
	t.Parallel()
	exampletest.TestOnPostgres(t, run, `sent:         a book; a lamp, which fails once; a unicorn, which fails for good
dead:         {"item":"unicorn"}, no such thing
rolled back:  2 times
in the table: book, lamp
billed:       book, lamp
mailed:       book, lamp
OK: what was committed was delivered, and nothing else
`)
}
