package storetest

import (
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest/internal/suite"
)

const (
	// envAlone is set in a process that runs one sentence alone, because it measures the whole process.
	envAlone = "OUTMILL_STORETEST_ALONE"
	// clearRefs takes back the peak of a process's memory, where the kernel keeps it.
	clearRefs = "/proc/self/clear_refs"
	// pageRecords is how many records a page has, and pageBytes what the page may cost.
	pageRecords, pageBytes = 50, 5 << 20
)

func memorySentences() []sentence {
	return []sentence{{"a page of 50 large records costs 5 MiB of memory at most", pagesCostLittle}}
}

// alone reports whether this process runs the sentence alone. Otherwise it has another process do so.
func (e *env) alone() bool {
	e.T.Helper()
	if os.Getenv(envAlone) != "" {
		return true
	}
	if _, err := os.Stat(clearRefs); err != nil {
		e.T.Skip("not supported by this system: it does not tell the peak of a process's memory")
	}
	parts := strings.Split(e.T.Name(), "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	cmd := exec.CommandContext(e.Ctx, os.Args[0], "-test.run="+strings.Join(parts, "/"), "-test.count=1", "-test.v")
	cmd.Env = append(os.Environ(), envAlone+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(e.T, err, string(out))
	require.Contains(e.T, string(out), "--- PASS: "+e.T.Name(), "the process has run the sentence")
	return false
}

// peakOf is how much the largest resident memory of the process grows while work runs.
func (e *env) peakOf(work func()) int {
	e.T.Helper()
	hwm := func() int {
		status, err := os.ReadFile("/proc/self/status")
		require.NoError(e.T, err)
		_, rest, _ := strings.Cut(string(status), "VmHWM:")
		kib, err := strconv.Atoi(strings.Fields(rest)[0])
		require.NoError(e.T, err)
		return kib << 10
	}
	debug.FreeOSMemory()
	require.NoError(e.T, os.WriteFile(clearRefs, []byte("5"), 0))
	before := hwm()
	work()
	return hwm() - before
}

// pagesCostLittle has the pages read twice: the first time pages the program in, too.
func pagesCostLittle(e *env) {
	if !e.alone() {
		return
	}
	size := 256 << 10
	if suite.All() {
		size = suite.Large(20 << 20)
	}
	if limited, ok := e.Harness.(Limited); ok {
		size = min(size, limited.MaxPayload())
	}
	e.Register(suite.Group)
	for range pageRecords {
		r := suite.Rec(orders, "large")
		r.Payload, r.Metadata = make([]byte, size), map[string]string{"name": strings.Repeat("x", size/100)}
		e.Append(r)
		e.Fail(e.Claim(outmill.NewOwnerToken(), suite.Limit(1))[0])
	}
	query := outmill.ListQuery{Status: outmill.StatusDead, Limit: pageRecords}
	pages := map[string]func(){"List": func() {
		found, err := e.Store.List(e.Ctx, query)
		require.NoError(e.T, err)
		require.Len(e.T, found, pageRecords)
	}}
	if operator, ok := outmill.As[roles.Repairs](e.Store); ok {
		pages["Find"] = func() {
			page, err := operator.Find(e.Ctx, query)
			require.NoError(e.T, err)
			require.Len(e.T, page.Records, pageRecords)
		}
		pages["DeadLetters"] = func() {
			page, err := operator.DeadLetters(e.Ctx, query)
			require.NoError(e.T, err)
			require.Len(e.T, page.Letters, pageRecords)
		}
	}
	for name, read := range pages {
		read()
		peak := e.peakOf(read)
		e.T.Logf("%s of %d records of %d KiB: %d KiB", name, pageRecords, size>>10, peak>>10)
		require.Less(e.T, peak, pageBytes, name)
	}
}
