package sqlite

import (
	"regexp"
)

// queries converts the templates of this package to SQL for one table prefix: {p:records}
// becomes the quoted name of the table (or index) records.
type queries struct {
	prefix   string
	expanded map[string]string
}

var placeholder = regexp.MustCompile(`\{p:([a-z_]+)\}`)

func newQueries(prefix string) *queries {
	q := &queries{prefix: prefix, expanded: make(map[string]string, len(hotStatements))}
	for _, template := range hotStatements {
		q.expanded[template] = q.expand(template)
	}
	return q
}

func (q *queries) text(template string) string {
	if text, ok := q.expanded[template]; ok {
		return text
	}
	return q.expand(template)
}

func (q *queries) expand(template string) string {
	return placeholder.ReplaceAllString(template, `"`+q.prefix+`$1"`)
}

// hotStatements are prepared once. They name their indexes, so that SQLite scans no table, with
// or without ANALYZE.
var hotStatements = []string{
	sqlLock, sqlHeader,
	insertOne, insertTen, insertHundred, sqlDedup, sqlLanesOfKeys,
	sqlDueTopics, sqlDueNames,
	sqlCandidates, sqlLine, sqlTopicLine, sqlTimeCome, sqlAdmit, sqlKeyStates, sqlTopicState,
	sqlGiveTurns, sqlUnturned, sqlTurnsFrom, sqlTurnPage, sqlTurnPageAny, sqlReadyBefore, sqlHeldLine,
	sqlAsides, sqlPausedLanes, sqlSetAside, sqlBringBack, sqlBringBackKeyed, sqlBringBackAll, sqlOpenResumed, sqlHeadTenants,
	sqlLookAtLanes, sqlOpenOverdue, sqlLaneHead, sqlUnhold, sqlHold, sqlBlockLane, sqlMoveLane, sqlDropLane, sqlOpenLanes,
	sqlLease, sqlPassExpired, sqlParkMet,
	sqlStanding, sqlDeleteAcked, sqlProcess, sqlAbandon, sqlSnooze, sqlRelease, sqlFail, sqlExtend,
	sqlStepsStanding, sqlJoinsWaitedFor, sqlMembers, sqlSetMember, sqlAddMember, sqlCount, sqlHurry, sqlJoin, sqlCountMembers,
	sqlGroups,
}
