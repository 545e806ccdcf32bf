package main

import (
	"testing"

	"github.com/outmill/outmill/_examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

func Test_what_was_committed_is_delivered_and_nothing_else(t *testing.T) {
	t.Parallel()
	exampletest.Prints(t, run, `sqlc's DBTX: book: committed; yacht: rolled back, card declined
a wrapper that counts: lamp: committed; sofa: rolled back, card declined
bun's Tx: vase: committed; organ: rolled back, card declined
sqlx's Tx: clock: committed; piano: rolled back, card declined
gorm's ConnPool: chair: committed; couch: rolled back, card declined
ent's Tx: plant: committed; statue: rolled back, card declined
in the table: book, chair, clock, lamp, plant, vase
delivered:    book, chair, clock, lamp, plant, vase
OK: what was committed was delivered, and nothing else
`)
}

func Test_an_interruption_ends_it_and_leaves_nothing_behind(t *testing.T) {
	t.Parallel()
	exampletest.EndsWhenInterrupted(t, run)
}
