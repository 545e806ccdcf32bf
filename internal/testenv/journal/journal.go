// Package journal has the logger of tests that read what was logged.
package journal

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// Journal is a logger that keeps its lines. Unlike Watermill's CaptureLoggerAdapter, whose Captured
// returns the map that the logger goes on writing, it may be read while other goroutines log, and a
// router or a store often still does. It is safe for concurrent use. Use New.
type Journal struct {
	fields watermill.LogFields
	pages  *pages
}

// Line is a line of the log. Its fields include those of With.
type Line struct {
	Level  watermill.LogLevel
	Msg    string
	Err    error
	Fields watermill.LogFields
}

type pages struct {
	mu    sync.Mutex
	lines []Line
	// texts are the lines as they read when they were logged: a field may change later.
	texts []string
}

var _ watermill.LoggerAdapter = (*Journal)(nil)

// New returns an empty journal.
func New() *Journal { return &Journal{pages: &pages{}} }

// Lines returns the lines of these levels, or all, in the order of their arrival. The caller owns the slice.
func (j *Journal) Lines(levels ...watermill.LogLevel) []Line {
	j.pages.mu.Lock()
	defer j.pages.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(j.pages.lines), func(l Line) bool {
		return len(levels) > 0 && !slices.Contains(levels, l.Level)
	})
}

// Take returns all lines since its last call, and forgets them.
func (j *Journal) Take() []Line {
	j.pages.mu.Lock()
	defer j.pages.mu.Unlock()
	lines := j.pages.lines
	j.pages.lines, j.pages.texts = nil, nil
	return lines
}

// Find returns the lines that have all the words, each as "LEVEL message err=… map[field:value …]".
func (j *Journal) Find(words ...string) []string {
	j.pages.mu.Lock()
	defer j.pages.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(j.pages.texts), func(text string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
	})
}

// Count returns the number of lines that have all the words.
func (j *Journal) Count(words ...string) int { return len(j.Find(words...)) }

// Wait waits for a line that has all the words, and returns the first one.
func (j *Journal) Wait(tb testing.TB, words ...string) string {
	tb.Helper()
	for late := time.After(time.Minute); ; {
		if found := j.Find(words...); len(found) > 0 {
			return found[0]
		}
		select {
		case <-late:
			tb.Fatalf("No log line has the words %q:\n%s", words, strings.Join(j.Find(), "\n"))
		case <-time.After(time.Millisecond):
		}
	}
}

func (j *Journal) write(level watermill.LogLevel, name, msg string, err error, fields watermill.LogFields) {
	j.pages.mu.Lock()
	defer j.pages.mu.Unlock()
	all := j.fields.Add(fields)
	j.pages.lines = append(j.pages.lines, Line{level, msg, err, all})
	j.pages.texts = append(j.pages.texts, fmt.Sprintf("%s %s err=%v %v", name, msg, err, all))
}

// Error implements watermill.LoggerAdapter.
func (j *Journal) Error(msg string, err error, fields watermill.LogFields) {
	j.write(watermill.ErrorLogLevel, "ERROR", msg, err, fields)
}

// Info implements watermill.LoggerAdapter.
func (j *Journal) Info(msg string, fields watermill.LogFields) {
	j.write(watermill.InfoLogLevel, "INFO", msg, nil, fields)
}

// Debug implements watermill.LoggerAdapter.
func (j *Journal) Debug(msg string, fields watermill.LogFields) {
	j.write(watermill.DebugLogLevel, "DEBUG", msg, nil, fields)
}

// Trace implements watermill.LoggerAdapter.
func (j *Journal) Trace(msg string, fields watermill.LogFields) {
	j.write(watermill.TraceLogLevel, "TRACE", msg, nil, fields)
}

// With implements watermill.LoggerAdapter. Both write to the same pages.
func (j *Journal) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return &Journal{j.fields.Add(fields), j.pages}
}
