package memstore_test

import (
	"testing"

	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/joinstest"
)

func TestConformance_Joins(t *testing.T) { joinstest.Run(t, storetest.Engine{New: newHarness}) }
