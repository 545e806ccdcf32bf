package memdriver_test

import (
	"math/rand/v2"
	"testing"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/storetest"
)

// loses has a driver lose every third row that it is to write, as if another call had changed it.
func loses() bool { return rand.IntN(3) == 0 }

// A store does what it promises although each of its writes is lost in part.
func TestConformanceOfLoser_Variant(t *testing.T) {
	testenv.WithoutRace(t, "the contract with lost rows")
	storetest.Run(t, suiteOf(0, loses))
}

func TestWalkOfLoser_Variant(t *testing.T) {
	testenv.WithoutRace(t, "walks with lost rows")
	storetest.WalkInSteps(t, suiteOf(2, loses))
}
