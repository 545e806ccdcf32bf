// Package suite is what the packages of storetest share: the frame of sentences, short
// words for them, and the random walk with its model.
package suite

import (
	"os"
	"testing"
)

// EnvAll is testenv.EnvAll, which would bring all engines' clients along.
const EnvAll = "OUTMILL_TEST_ALL"

// brief is the value of EnvAll for the sizes of Brief without the race detector.
const brief = "brief"

// All tells whether the long tests are asked for too.
func All() bool { return os.Getenv(EnvAll) != "" && !testing.Short() }

// Brief tells whether large amounts are smaller, and walks fewer: under the race detector, which makes an engine written in Go ten to
// twenty times slower, and where testenv.Brief asks for the same sizes without it.
func Brief() bool { return UnderRace || os.Getenv(EnvAll) == brief || !All() }
