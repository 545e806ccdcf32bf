package driver_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/dashboard"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/sqlite/internal/driver"
	"github.com/outmill/outmill/storekit"
)

// These tests measure the peak of the resident memory of a child process, which is a run of TestChild_Memory, or have the
// kernel limit it.

const (
	envChild = "OUTMILL_MEMORY_CHILD"
	envGroup = "OUTMILL_MEMORY_GROUP"
	mebibyte = 1 << 20
)

// openSmall opens a store on a file as a program does.
func openSmall(t *testing.T, path string) *engine.Engine {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(60000)&_pragma=foreign_keys(1)&_pragma=synchronous(OFF)"+
		"&_txlock=immediate&_pragma=journal_mode(WAL)")
	require.NoError(t, err)
	store := engine.New(driver.New(db, driver.Config{Name: "sqlite", Prefix: "outmill_", BusyTimeout: time.Minute, Owned: true}),
		engine.Config{Name: "sqlite"})
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{}))
	return store
}

// child runs a child process on a file. It returns what it says and its peak in bytes; err if it was killed.
func child(t *testing.T, what, path string, attributes func(*exec.Cmd)) (says []string, peak int, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild_Memory$", "-test.count=1")
	cmd.Env = append(os.Environ(), envChild+"="+what+":"+path)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if attributes != nil {
		attributes(cmd)
	}
	err = cmd.Run()
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSpace(line)
		if n, found := strings.CutPrefix(line, "peak "); found {
			peak, _ = strconv.Atoi(n)
		}
		if said, found := strings.CutPrefix(line, "says "); found {
			says = append(says, said)
		}
	}
	if err != nil {
		t.Log(out.String())
	}
	t.Logf("%s: %v, %v, peak %d KiB", what, says, err, peak>>10)
	require.True(t, err != nil || peak > 0, out.String())
	return says, peak, err
}

func TestChild_Memory(t *testing.T) {
	what, path, found := strings.Cut(os.Getenv(envChild), ":")
	if !found {
		return
	}
	if group := os.Getenv(envGroup); group != "" {
		require.NoError(t, os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0))
	}
	store := openSmall(t, path)
	switch what {
	case "pages":
		readPages(t, store)
	case "forward with a limit":
		forwardAll(t, store, &narrow{most: mebibyte})
	case "forward":
		forwardAll(t, store, struct{ message.Publisher }{&narrow{}})
	}
	fmt.Println("peak", peakOf(t))
}

// peakOf is the largest resident memory that this process has had, in bytes.
func peakOf(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	return n << 10
}

// readPages asks for all that shows a page of records.
func readPages(t *testing.T, store *engine.Engine) {
	t.Helper()
	query := outmill.ListQuery{Status: outmill.StatusDead, Limit: 50}
	found, err := store.List(t.Context(), query)
	require.NoError(t, err)
	require.Len(t, found, 50)
	page, err := store.Find(t.Context(), query)
	require.NoError(t, err)
	require.Len(t, page.Records, 50, "as a dry run does")
	letters, err := store.DeadLetters(t.Context(), query)
	require.NoError(t, err)
	require.Len(t, letters.Letters, 50)
	board, err := dashboard.New(store, dashboard.Config{User: func(*http.Request) string { return "ann" }, ShowErrors: true}, nil)
	require.NoError(t, err)
	defer board.Close()
	for _, address := range []string{"/", "/dead", "/records?status=dead", "/records"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		r.Host = "localhost"
		w := httptest.NewRecorder()
		board.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code, address)
	}
	_, err = monitor.Doctor(t.Context(), store, monitor.DoctorConfig{})
	require.NoError(t, err)
}

// A page of records costs as much memory as one of records with small payloads.
func TestMemory_PagesReadNoPayloads(t *testing.T) {
	t.Parallel()
	large := 2 * mebibyte
	if testenv.All() {
		large = 20 * mebibyte
	}
	peaks := map[int]int{}
	for _, size := range []int{20, large} {
		path := filepath.Join(t.TempDir(), "outbox.db")
		store := openSmall(t, path)
		for i := range 50 {
			require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "orders", Key: strconv.Itoa(i), Payload: make([]byte, size),
				Metadata: map[string]string{"size": strings.Repeat("x", size/100)}}))
		}
		killAll(t, store)
		var err error
		_, peaks[size], err = child(t, "pages", path, nil)
		require.NoError(t, err)
	}
	require.Less(t, peaks[large]-peaks[20], 5*mebibyte)
}

func killAll(t *testing.T, store *engine.Engine) {
	t.Helper()
	for range 50 {
		found, err := store.Claim(t.Context(), outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Limit: 1, Lease: time.Hour})
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.NoError(t, store.Fail(t.Context(), []outmill.Settlement{{Lease: found[0].Lease(), Err: "refused"}}))
	}
}

// narrow is a publisher that knows the largest message that it can take; 0 is unknown.
type narrow struct {
	mu   sync.Mutex
	most int
}

func (p *narrow) MaxMessageBytes() int { return p.most }

func (p *narrow) Publish(_ string, messages ...*message.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, msg := range messages {
		fmt.Println("says", msg.UUID)
	}
	return nil
}

func (p *narrow) Close() error { return nil }

// forwardAll forwards until nothing is due.
func forwardAll(t *testing.T, store *engine.Engine, to message.Publisher) {
	t.Helper()
	config := forwarder.Config{Group: outmill.DefaultGroup, Lease: time.Second, Retry: outmill.RetryPolicy{MaxAttempts: 1}}
	f, err := forwarder.New(store, to, config, nil)
	require.NoError(t, err)
	_, err = f.Once(t.Context())
	require.NoError(t, err)
}

// allowed is the memory of the process of a reader, which has none for a record of 100 MB.
const allowed = 256 * mebibyte

// withLarge makes a store with a record of this size and three small ones behind it.
func withLarge(t *testing.T, size int) (path string, store *engine.Engine, large outmill.WorkItemID) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "outbox.db")
	store = openSmall(t, path)
	first := &outmill.Record{MessageID: "large", Topic: "orders", Payload: make([]byte, size)}
	require.NoError(t, store.Append(t.Context(), first))
	for _, name := range []string{"m1", "m2", "m3"} {
		require.NoError(t, store.Append(t.Context(), &outmill.Record{MessageID: name, Topic: "orders"}))
	}
	return path, store, first.ID
}

func TestMemory_RecordAboveTheLimitOfThePublisher(t *testing.T) {
	t.Parallel()
	size := 60_000_000
	if testenv.All() {
		size = 100_000_000
	}
	path, store, id := withLarge(t, size)
	says, peak, err := child(t, "forward with a limit", path, nil)
	require.NoError(t, err)
	slices.Sort(says)
	require.Equal(t, []string{"m1", "m2", "m3"}, says)
	require.Less(t, peak, size, "the process has not read the record, and so has had less memory than its size")
	got, err := store.Get(context.WithoutCancel(t.Context()), id)
	require.NoError(t, err)
	require.Equal(t, outmill.StatusDead, got.Status)
	require.Contains(t, got.LastError, storekit.TooLargeError)
}

// memoryGroup is a control group whose processes the kernel kills when they need more memory than allowed.
func memoryGroup(t *testing.T) (dir string) {
	t.Helper()
	name := "outmill-test-" + strconv.Itoa(os.Getpid())
	for _, one := range []struct{ root, limit string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
		{"/sys/fs/cgroup", "memory.max"},
	} {
		dir = filepath.Join(one.root, name)
		if os.Mkdir(dir, 0o700) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if os.WriteFile(filepath.Join(dir, one.limit), []byte(strconv.Itoa(allowed)), 0) == nil {
			return dir
		}
	}
	t.Skip("no control group with a limit of memory can be made here")
	return ""
}

func TestMemory_RecordThatKillsItsProcess(t *testing.T) {
	testenv.Long(t, "a record of 100 MB that ends three processes, each killed by the kernel, takes 10 seconds")
	t.Parallel()
	group := memoryGroup(t)
	path, store, id := withLarge(t, 100_000_000)
	limit := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, envGroup+"="+group) }
	status := func() *outmill.Record {
		got, err := store.Get(t.Context(), id)
		require.NoError(t, err)
		return got
	}
	// One attempt is allowed, and a worker would make the record dead that has had it, if a claim could return it.
	const most = outmill.SuspectExpiries + 2
	var delivered []string
	for deaths := 0; ; {
		says, _, err := child(t, "forward", path, limit)
		delivered = append(delivered, says...)
		got := status()
		if got.Status == outmill.StatusDead {
			require.NoError(t, err)
			require.Equal(t, most, deaths, "the processes that died")
			require.Equal(t, storekit.SuspectError(deaths), got.LastError)
			break
		}
		if err != nil {
			deaths++
			require.LessOrEqual(t, deaths, most)
			require.Equal(t, "signal: killed", err.Error())
			require.Equal(t, outmill.StatusLeased, got.Status, "the lease is stored before the content is read")
		}
		if len(delivered) == 0 {
			// The next process begins while the lease is valid.
			continue
		}
		require.Eventually(t, func() bool {
			n, err := store.ReapExpired(t.Context(), 10)
			require.NoError(t, err)
			return n > 0 || status().Status == outmill.StatusPending
		}, time.Minute, 10*time.Millisecond)
	}
	slices.Sort(delivered)
	require.Equal(t, []string{"m1", "m2", "m3"}, delivered)
}
