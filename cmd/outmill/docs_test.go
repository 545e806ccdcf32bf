package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func TestDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	require.NoError(t, err)
	page := string(text)

	t.Run("the page has a section for every command", func(t *testing.T) {
		t.Parallel()
		for _, cmd := range newRoot(terminal{}).Commands() {
			if cmd.Name() == "version" || cmd.Name() == "completion" {
				continue
			}
			require.Contains(t, page, "\n## "+cmd.CommandPath()+"\n")
			for _, member := range cmd.Commands() {
				require.Contains(t, page, member.CommandPath())
			}
		}
	})

	t.Run("the page names the flags that the tool has, and no others", func(t *testing.T) {
		t.Parallel()
		has := map[string]bool{}
		var collect func(cmd *cobra.Command)
		collect = func(cmd *cobra.Command) {
			if cmd.Name() == "completion" {
				return
			}
			cmd.Flags().VisitAll(func(flag *pflag.Flag) { has["--"+flag.Name] = true })
			for _, member := range cmd.Commands() {
				collect(member)
			}
		}
		collect(newRoot(terminal{}))
		names := map[string]bool{}
		for _, flag := range regexp.MustCompile(`--[a-z][a-z-]+`).FindAllString(page, -1) {
			names[flag] = true
		}
		for flag := range has {
			require.True(t, names[flag], "the page does not name %s", flag)
		}
		for flag := range names {
			require.True(t, has[flag], "the tool has no %s", flag)
		}
	})

	t.Run("the configurations on the page are some that forward takes", func(t *testing.T) {
		t.Parallel()
		blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page, -1)
		require.Len(t, blocks, 2)
		for _, block := range blocks {
			file := writeFile(t, block[1])
			s, err := readSettings(file)
			require.NoError(t, err)
			require.True(t, len(s.Tenants) == 2 || s.Discover != nil)
			require.NoError(t, fill(forwardCommand(terminal{}).Flags(), s, file, func(string) (string, bool) { return "", false }))
		}
	})
}
