package sqlite

import (
	"fmt"
	"strings"
	"testing"
)

func Test_zz_plans(t *testing.T) {
	s, err := Open(t.Context(), ":memory:", Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := append([]string{}, hotStatements...)
	all = append(all, sqlUnroutedTopics, sqlAdoptLine, sqlAdoptLater, sqlAdoptSettled, sqlDropLine, sqlDropHeld, sqlDropLater, sqlDropSettled, sqlDropExpired, sqlNextLater, sqlEndedLeases, sqlReap, sqlExpired, sqlExpire, sqlDeleteProcessed, sqlDeleteDedup, sqlGet, sqlSeqsOf, sqlDelete, sqlDeadOf, sqlRequeue, sqlList, sqlNextLine, sqlNextHeld, sqlNextSettled, sqlNextExpired, sqlTopicStats, sqlParkBehind)
	for _, q := range all {
		if strings.HasPrefix(q, "INSERT INTO {p:records}") {
			continue
		}
		fmt.Println("=====", strings.Join(strings.Fields(q), " ")[:min(150, len(strings.Join(strings.Fields(q), " ")))])
		rows, err := s.db.Query("EXPLAIN QUERY PLAN "+s.sql.text(q), make([]any, func() int {
			for n := 9; n > 0; n-- {
				if strings.Contains(q, fmt.Sprintf("?%d", n)) {
					return n
				}
			}
			return strings.Count(q, "?")
		}())...)
		if err != nil {
			fmt.Println("ERR", err)
			continue
		}
		for rows.Next() {
			var id, parent, x int
			var d string
			rows.Scan(&id, &parent, &x, &d)
			fmt.Println("   ", d)
		}
		rows.Close()
	}
}
