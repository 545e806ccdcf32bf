package subscriber_test

import (
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
)

// journal keeps the log lines. Watermill's CaptureLogger does not allow reads while other
// goroutines write.
type journal struct {
	fields watermill.LogFields
	pages  *pages
}

type pages struct {
	mu    sync.Mutex
	lines []string
}

func newJournal() *journal { return &journal{pages: &pages{}} }

func (j *journal) write(level, msg string, err error, fields watermill.LogFields) {
	all := maps.Clone(j.fields)
	if all == nil {
		all = watermill.LogFields{}
	}
	maps.Copy(all, fields)
	j.pages.mu.Lock()
	defer j.pages.mu.Unlock()
	j.pages.lines = append(j.pages.lines, fmt.Sprintf("%s %s err=%v %v", level, msg, err, all))
}

func (j *journal) Error(msg string, err error, fields watermill.LogFields) {
	j.write("ERROR", msg, err, fields)
}
func (j *journal) Info(msg string, fields watermill.LogFields)  { j.write("INFO", msg, nil, fields) }
func (j *journal) Debug(msg string, fields watermill.LogFields) { j.write("DEBUG", msg, nil, fields) }
func (j *journal) Trace(msg string, fields watermill.LogFields) { j.write("TRACE", msg, nil, fields) }

func (j *journal) With(fields watermill.LogFields) watermill.LoggerAdapter {
	all := maps.Clone(j.fields)
	if all == nil {
		all = watermill.LogFields{}
	}
	maps.Copy(all, fields)
	return &journal{fields: all, pages: j.pages}
}

// count returns the number of lines that contain all of the words.
func (j *journal) count(words ...string) int {
	j.pages.mu.Lock()
	defer j.pages.mu.Unlock()
	n := 0
lines:
	for _, line := range j.pages.lines {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue lines
			}
		}
		n++
	}
	return n
}
