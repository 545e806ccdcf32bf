package main

import (
	"testing"

	"github.com/outmill/outmill/_examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m) }

func TestPGX(t *testing.T) {
	t.Parallel()
	exampletest.TestOnPostgres(t, run, exampletest.Savepoints)
}
