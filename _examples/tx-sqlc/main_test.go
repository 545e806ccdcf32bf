package main

import (
	"testing"

	"github.com/outmill/outmill/_examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

func TestSQLC(t *testing.T) {
	t.Parallel()
	exampletest.TestOnSQL(t, run, exampletest.TwoSales)
}
