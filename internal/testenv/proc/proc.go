// Package proc starts and stops the processes of engines, and reads their ids and logs. It
// is for the packages next to it.
package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ReadPid reads a file that holds one process id. It returns an os.ErrNotExist if there is
// no such file.
func ReadPid(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("%s does not hold a process id", file)
	}
	return pid, nil
}

// LastLines returns the last 600 bytes of a log, or the error of reading it.
func LastLines(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	const enough = 600
	return string(text[max(0, len(text)-enough):])
}

// LastLine returns the last line of a command's output that is not blank.
func LastLine(out []byte) string {
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	return string(lines[len(lines)-1])
}
