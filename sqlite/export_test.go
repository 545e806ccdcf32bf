package sqlite

import (
	"context"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlite/internal/turnstile"
	"github.com/outmill/outmill/storekit"
)

// AllStatements are the templates whose plans the tests check: all statements that a reader, a
// writer or the janitor runs repeatedly.
func AllStatements() []string {
	return append([]string{
		sqlUnroutedTopics, sqlAdoptLine, sqlAdoptTurns, sqlAdoptLater, sqlAdoptSettled,
		sqlNoteDrop, sqlNotedDrop, sqlForgetDrop, sqlGiveBack, sqlSettledOfGroup, sqlDropLanes,
		sqlEndRegistrations, sqlNoted, sqlUndeliveredTopics, sqlUndelivered, sqlDropUndelivered, sqlDropEmptyLanes, sqlHasRecords,
		sqlNextLater, sqlEndedLeases, sqlReap, sqlExpired, sqlExpire, sqlDeleteProcessed, sqlDeleteDedup,
		sqlGet, matchingAll(sqlSearch), matchingAll(sqlSearchSettled), matchingAll(sqlSearchLeased),
		sqlRecordsOf, sqlSeqsOf, sqlDelete, sqlDeadOf, sqlParkedKeys, sqlParkedOf,
		sqlRequeue, sqlBehind, sqlHeldOf,
		sqlLetters, sqlEdit, sqlHead, sqlParkedBehind, sqlBeginSkip, sqlNote, sqlAudited, sqlDeleteOldAudit,
		sqlNextLine, sqlNextTurns, sqlNextHeld, sqlNextExpired, sqlNextAsides, sqlNextSettled, sqlTopicStats, sqlOldestDue, sqlWaiting,
		sqlPauses, sqlRenewPause, sqlCountPause, sqlAddPause, sqlEndPause, sqlPausesChanged,
		sqlStartJoin, sqlListJoins, sqlListGroup, sqlMemberStatus, sqlListSteps,
		sqlStepOfRecord, sqlRecordToAttach, sqlSetStep, sqlRecordsOfStep, sqlSeal, sqlEndJoin, sqlOldJoins, sqlDeleteMembers, sqlDeleteJoin,
		sqlStepsOf, sqlOpenStepsOf,
		sqlPutNote, sqlIsLeased, sqlHasNote, sqlKeepNotes, sqlDeleteNotes,
		sqlFindSaga, sqlSagasBefore, sqlSagaState, sqlInsertSaga, sqlUpdateSaga, sqlDeleteSaga, sqlDeleteFinishedSagas,
	}, hotStatements...)
}

// Sorting are the statements that may sort: they sort topics, the ids of a call, or records in
// work, which are few.
func Sorting() []string {
	return []string{sqlDueTopics, sqlUnroutedTopics, sqlUndeliveredTopics, sqlParkedKeys, matchingAll(sqlSearchLeased)}
}

// matchingAll returns the template of a search with each condition that a query can have.
func matchingAll(template string) string {
	now := time.Now()
	return matching(template, outmill.ListQuery{
		Group: "g", Topic: "t", Status: outmill.StatusDead, Key: "k", MessageID: "m", CorrelationID: "c", TenantID: "t", ErrorText: "e",
		Contract: "c", ContractVersion: 1,
		CreatedAfter: now, CreatedBefore: now,
	})
}

// SQL returns the text of a template.
func (s *Store) SQL(template string) string { return s.sql.text(template) }

// SetAtOnce limits the steps of work that one transaction does not finish.
func (s *Store) SetAtOnce(records int) { s.atOnce = storekit.BatchSize(records) }

// SagaStatements are the templates of sagas.
func SagaStatements() []string {
	return []string{
		sqlFindSaga, sqlSagaState, sqlInsertSaga, sqlUpdateSaga, sqlDeleteSaga, sqlDeleteFinishedSagas, sqlRetainSaga, sqlDeleteOldSagas,
	}
}

// NextIn returns the statement that finds the next group and topic among rows.
func NextIn(rows string) string { return nextIn(rows) }

// FirstDue returns the search for the row among the first ones that has been due longest.
func FirstDue(rows string) string { return firstDue(rows) }

// TurnStatements are the templates of claims that serve turns.
func TurnStatements() []string {
	return []string{sqlGiveTurns, sqlUnturned, sqlTurnsFrom, sqlTurnPage, sqlTurnPageAny, sqlReadyBefore, sqlHeldLine, sqlReady}
}

// Waiting is how many write transactions of the store wait for their turn.
func (s *Store) Waiting() int {
	return s.writer.Waiting()
}

// AtLeast is the context of the work of a transaction whose turn it is, for an extension and for another call.
func AtLeast(ctx context.Context) (extension, other context.Context, cancel context.CancelFunc) {
	extension, cancel = turnstile.AtLeast(turnstile.Urgently(ctx))
	other, _ = turnstile.AtLeast(ctx)
	return extension, other, cancel
}
