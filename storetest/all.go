package storetest

import (
	"os"
	"testing"
)

// envAll is testenv.EnvAll, which would bring all engines' clients along.
const envAll = "OUTMILL_TEST_ALL"

// all tells whether the long tests are asked for too.
func all() bool { return os.Getenv(envAll) != "" && !testing.Short() }
