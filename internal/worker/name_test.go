package worker_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
)

func Test_a_worker_has_its_configured_name_or_that_of_its_process(t *testing.T) {
	t.Parallel()
	require.Equal(t, "replies-1", worker.Name("replies-1"))
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("%s:%d", host, os.Getpid()), worker.Name(""))
	require.NoError(t, outmill.CheckWorker(worker.Name("")))
}
