package sqlite

import (
	"encoding/json"
	"strconv"
)

// Each list is passed to SQLite as one JSON argument, so a statement is the same for every
// length.

func seqList(seqs []int64) string {
	list := make([]byte, 0, 2+len(seqs)*10)
	list = append(list, '[')
	for i, seq := range seqs {
		if i > 0 {
			list = append(list, ',')
		}
		list = strconv.AppendInt(list, seq, 10)
	}
	return string(append(list, ']'))
}

// textList never fails: any string becomes JSON.
func textList(texts []string) string {
	if len(texts) == 0 {
		return "[]"
	}
	list, _ := json.Marshal(texts)
	return string(list)
}
