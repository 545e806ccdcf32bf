package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/kafka"
)

func TestDeploy(t *testing.T) {
	t.Parallel()

	t.Run("the configuration files of the examples have settings that exist", func(t *testing.T) {
		t.Parallel()
		manifest, err := os.ReadFile(filepath.Join("deploy", "kubernetes.yaml"))
		require.NoError(t, err)
		_, inManifest, found := strings.Cut(string(manifest), "forward.yaml: |\n")
		require.True(t, found)
		inManifest, _, _ = strings.Cut(inManifest, "---")
		for _, file := range []string{filepath.Join("deploy", "forward.yaml"), writeFile(t, strings.ReplaceAll(inManifest, "    ", ""))} {
			s, err := readSettings(file)
			require.NoError(t, err)
			cmd := forwardCommand(terminal{})
			require.NoError(t, fill(cmd.Flags(), s, file, func(string) (string, bool) { return "", false }))
			require.Equal(t, "shop", cmd.Flags().Lookup("source").Value.String())
			_, err = parseKafka(cmd.Flags().Lookup("to").Value.String())
			require.NoError(t, err)
		}
	})
	t.Run("the memory of the manifest holds what a forwarder may read", func(t *testing.T) {
		t.Parallel()
		manifest, err := os.ReadFile(filepath.Join("deploy", "kubernetes.yaml"))
		require.NoError(t, err)
		_, limits, found := strings.Cut(string(manifest), "limits:")
		require.True(t, found)
		text := regexp.MustCompile(`memory: (\d+Mi)\n`).FindStringSubmatch(limits)
		require.NotNil(t, text)
		var limit bytesValue
		require.NoError(t, limit.Set(text[1]+"B"))
		// A process that forwards small messages needs 72 MiB, and what it reads takes about four times its size.
		const maxInFlightBytes = 16 << 20
		most := 72<<20 + 4*(maxInFlightBytes+kafka.DefaultMaxMessageBytes)
		require.Less(t, most, int(softLimit(0, writeFile(t, strconv.FormatInt(int64(limit), 10)))))
	})
	t.Run("the discovery in a comment of the example takes the place of the source", func(t *testing.T) {
		t.Parallel()
		text, err := os.ReadFile(filepath.Join("deploy", "forward.yaml"))
		require.NoError(t, err)
		before, comment, found := strings.Cut(string(text), "# discover:")
		require.True(t, found)
		before = strings.Replace(before, "source: shop\n", "", 1)
		s, err := readSettings(writeFile(t, before+"discover:"+strings.ReplaceAll(comment, "\n# ", "\n")))
		require.NoError(t, err)
		require.Equal(t, discover{kind: discoverQuery, source: "shop", sql: "SELECT key, url FROM tenants"}, *s.Discover)
		require.Equal(t, limits{maxConnections: 100}, s.Limits)
	})
}
