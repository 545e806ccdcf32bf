package main

import (
	"testing"

	"github.com/outmill/outmill/_examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

func Test_what_was_committed_is_delivered_and_nothing_else(t *testing.T) {
	t.Parallel()
	exampletest.Prints(t, run, `book: committed
yacht: rolled back, card declined
vase: committed; its wrapping: rolled back to the savepoint, out of ribbon
lamp: committed; its bulb: committed, in a savepoint
in the table: book, bulb, lamp, vase
delivered:    book, bulb, lamp, vase
OK: what was committed was delivered, and nothing else
`)
}

func Test_an_interruption_ends_it_and_leaves_nothing_behind(t *testing.T) {
	t.Parallel()
	exampletest.EndsWhenInterrupted(t, run)
}
