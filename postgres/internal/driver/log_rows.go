package driver

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// rawRow is a row as the connection has it. Its values are gone with the next one.
type rawRow struct {
	values [][]byte
	// binary says in which of its two forms the server has sent the values.
	binary bool
	err    error
}

func (r *rawRow) number(i int) int64 {
	if value := r.values[i]; !r.binary {
		n, err := strconv.ParseInt(string(value), 10, 64)
		r.err = cmp.Or(r.err, err)
		return n
	} else if len(value) == 8 {
		return int64(binary.BigEndian.Uint64(value))
	}
	r.err = cmp.Or(r.err, fmt.Errorf("column %d: want a number of 8 bytes, have %d", i, len(r.values[i])))
	return 0
}

func (r *rawRow) id(i int) (id outmill.WorkItemID) {
	if !r.binary {
		parsed, err := uuid.ParseBytes(r.values[i])
		r.err = cmp.Or(r.err, err)
		return outmill.WorkItemID(parsed)
	}
	copy(id[:], r.values[i])
	return id
}

// bytes are the value, which is gone with the next row where it is binary; nil is NULL.
func (r *rawRow) bytes(i int) []byte {
	value := r.values[i]
	if value == nil || r.binary {
		return value
	}
	digits := bytes.TrimPrefix(value, []byte(`\x`))
	decoded := make([]byte, hex.DecodedLen(len(digits)))
	_, err := hex.Decode(decoded, digits)
	r.err = cmp.Or(r.err, err)
	return decoded
}

// rowMemory is memory to read rows into. If it is shared, rows share large pieces of it, which stay as long as one of the rows is in
// use. Otherwise a row has its texts and its payload for itself, and shares its record with few others.
type rowMemory struct {
	shared bool
	// left is how many rows may come.
	left    int
	records []outmill.Record
	texts   strings.Builder
	bytes   []byte
	entries []roles.MetadataEntry
}

const (
	recordsAtOnce = 16
	// sharedRecords, sharedEntries and sharedBytes are the sizes of pieces that rows share.
	sharedRecords = 48
	sharedEntries = 256
	sharedBytes   = 64 << 10
)

// record returns a new record.
func (m *rowMemory) record() *outmill.Record {
	if len(m.records) == 0 {
		n := recordsAtOnce
		if m.shared {
			n = sharedRecords
		}
		m.records = make([]outmill.Record, max(1, min(n, m.left)))
	}
	m.left--
	r := &m.records[0]
	m.records = m.records[1:]
	return r
}

// makeRoom makes room for the texts of a row.
func (m *rowMemory) makeRoom(values [][]byte) {
	n := 0
	for _, value := range values {
		n += len(value)
	}
	if !m.shared || m.texts.Cap()-m.texts.Len() < n {
		m.texts.Reset()
		m.texts.Grow(m.piece(n))
	}
}

// piece is how many bytes to allocate for n.
func (m *rowMemory) piece(n int) int {
	if m.shared {
		return max(n, sharedBytes)
	}
	return n
}

// text returns a copy of the value.
func (m *rowMemory) text(value []byte) string {
	if len(value) == 0 {
		return ""
	}
	begin := m.texts.Len()
	m.texts.Write(value)
	return m.texts.String()[begin:]
}

// payload returns a copy of the column; nil is NULL.
func (m *rowMemory) payload(row *rawRow, column int) []byte {
	value := row.bytes(column)
	switch {
	case value == nil || !row.binary:
		return value
	case !m.shared:
		return bytes.Clone(value)
	}
	if cap(m.bytes)-len(m.bytes) < len(value) {
		m.bytes = make([]byte, 0, m.piece(len(value)))
	}
	begin := len(m.bytes)
	m.bytes = append(m.bytes, value...)
	return m.bytes[begin:len(m.bytes):len(m.bytes)]
}

// list sets the metadata of a content as a list.
func (m *rowMemory) list(c *content, metadata string) {
	if metadata == "" {
		return
	}
	if cap(m.entries)-len(m.entries) < sharedEntries/16 {
		m.entries = make([]roles.MetadataEntry, 0, sharedEntries)
	}
	begin := len(m.entries)
	list, err := storekit.AppendMetadata(m.entries, metadata)
	if err != nil {
		c.Refuse("metadata", sqlkit.WantMetadata)
		return
	}
	if m.entries = list; len(list) > begin {
		c.Entries = list[begin:len(list):len(list)]
	}
}
