package main

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemory(t *testing.T) {
	t.Parallel()

	t.Run("the soft limit is nine tenths of the container's, unless the flag names one", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]int64{"1000000000\n": 900_000_000, "max\n": 0, "": 0} {
			file := writeFile(t, text)
			require.Equal(t, want, softLimit(0, file), text)
			require.EqualValues(t, 256<<20, softLimit(256<<20, file), text)
		}
		require.Zero(t, softLimit(0, filepath.Join(t.TempDir(), "missing")))
	})

	t.Run("a daemon runs at GOGC 400 with the soft limit, and GOGC and GOMEMLIMIT of the environment win", func(t *testing.T) {
		t.Parallel()
		ofContainer := float64(softLimit(0, containerFile))
		if ofContainer == 0 {
			ofContainer = math.MaxInt64
		}
		for name, tc := range map[string]struct {
			env      []string
			args     []string
			gc, most float64
		}{
			"by default":              {nil, nil, 400, ofContainer},
			"with a flag":             {nil, []string{"--memory-limit", "256MiB"}, 400, 256 << 20},
			"with GOGC":               {[]string{"GOGC=50"}, []string{"--memory-limit", "256MiB"}, 50, 256 << 20},
			"with GOMEMLIMIT":         {[]string{"GOMEMLIMIT=300MiB"}, []string{"--memory-limit", "256MiB"}, 400, 300 << 20},
			"with GOMEMLIMIT for off": {[]string{"GOMEMLIMIT=off"}, []string{"--memory-limit", "256MiB"}, 400, math.MaxInt64},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				env := append([]string{"GOGC=", "GOMEMLIMIT="}, tc.env...)
				d := startDaemon(t, env, append([]string{newWorld(t).url, "--to", "memory:", "--listen", "127.0.0.1:0"}, tc.args...)...)
				s := scrapeOf(t, "http://"+d.await(t, `address=(\S+)`)[1])
				require.Equal(t, tc.most, s.value(t, "go_gc_gomemlimit_bytes"))
				require.Equal(t, tc.gc, s.value(t, "go_gc_gogc_percent"))
				require.Equal(t, exitOK, d.stop(t), d.all.String())
			})
		}
	})
}
