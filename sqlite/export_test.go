package sqlite

// AllStatements are the templates whose plans the tests read: everything that
// a reader, a writer or the janitor runs again and again.
func AllStatements() []string {
	return append([]string{
		sqlUnroutedTopics, sqlAdoptLine, sqlAdoptLater, sqlAdoptSettled,
		sqlDropLine, sqlDropHeld, sqlDropLater, sqlDropExpired, sqlDropSettled,
		sqlNextLater, sqlEndedLeases, sqlReap, sqlExpired, sqlExpire, sqlDeleteProcessed, sqlDeleteDedup,
		sqlGet, sqlList, sqlSeqsOf, sqlDelete, sqlDeadOf, sqlRequeue, sqlParkBehind,
		sqlNextLine, sqlNextHeld, sqlNextExpired, sqlNextSettled, sqlTopicStats,
	}, hotStatements...)
}

// SortsTopics are the statements that sort topics or the ids of a call, which
// are few; nothing else may sort.
func SortsTopics() []string { return []string{sqlDueTopics, sqlUnroutedTopics, sqlDeadOf} }

// SQL returns the text of a template.
func (s *Store) SQL(template string) string { return s.sql.text(template) }
