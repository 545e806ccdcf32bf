package sqlserver

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
)

// SchemaFiles are the migrations that are embedded in the program.
var SchemaFiles fs.FS = schemaFiles

// Passes reports whether a transaction that failed with err is repeated.
func Passes(err error) bool { return passes(err) }

// Ended returns what becomes of the error of a statement in a caller's transaction.
func Ended(err error) error { return ended(err) }

// Arguments returns the arguments of a statement, or of a procedure, as the driver gets them.
func Arguments(template string, args ...any) []any {
	return call{template: template, args: args}.arguments()
}

// MaxAtOnce is the largest number of records that one statement changes.
const MaxAtOnce = maxAtOnce

// EnsureFrom is the Ensure of a program with these migrations.
func (s *Store) EnsureFrom(ctx context.Context, files fs.FS) error { return s.ensure(ctx, files) }

// Expand puts the store's names into a text with the default ones.
func (s *Store) Expand(text string) string { return s.sql.expand(text) }

// Statements are the statements of the program, as written in its source.
var Statements = map[string]string{
	"sqlAbort":               sqlAbort,
	"sqlAddGroup":            sqlAddGroup,
	"sqlAddMember":           sqlAddMember,
	"sqlClock":               sqlClock,
	"sqlAudited":             sqlAudited,
	"sqlCompatibility":       sqlCompatibility,
	"sqlCount":               sqlCount,
	"sqlCountMembers":        sqlCountMembers,
	"sqlDedupKey":            sqlDedupKey,
	"sqlDeleteDedup":         sqlDeleteDedup,
	"sqlDeleteFinishedSagas": sqlDeleteFinishedSagas,
	"sqlDeleteJoins":         sqlDeleteJoins,
	"sqlDeleteMembers":       sqlDeleteMembers,
	"sqlDeleteOldSagas":      sqlDeleteOldSagas,
	"sqlDeleteOldAudit":      sqlDeleteOldAudit,
	"sqlDeleteProcessed":     sqlDeleteProcessed,
	"sqlDeleteSaga":          sqlDeleteSaga,
	"sqlDropLanes":           sqlDropLanes,
	"sqlWaiting":             sqlWaiting,
	"sqlWaitingUnrouted":     sqlWaitingUnrouted,
	"sqlEndJoin":             sqlEndJoin,
	"sqlEndRegistrations":    sqlEndRegistrations,
	"sqlEnded":               sqlEnded,
	"sqlFindSaga":            sqlFindSaga,
	"sqlForgetGroup":         sqlForgetGroup,
	"sqlBeginDrop":           sqlBeginDrop,
	"sqlForgetDrop":          sqlForgetDrop,
	"sqlGeneration":          sqlGeneration,
	"sqlGet":                 sqlGet,
	"sqlGetLocked":           sqlGetLocked,
	"sqlGroups":              sqlGroups,
	"sqlHasEnded":            sqlHasEnded,
	"sqlHasMeta":             sqlHasMeta,
	"sqlHasNote":             sqlHasNote,
	"sqlHasSchema":           sqlHasSchema,
	"sqlHoldGroups":          sqlHoldGroups,
	"sqlHurry":               sqlHurry,
	"sqlInsertSaga":          sqlInsertSaga,
	"sqlJoinsOf":             sqlJoinsOf,
	"sqlJoinsToFill":         sqlJoinsToFill,
	"sqlLackingRights":       sqlLackingRights,
	"sqlLetters":             sqlLetters,
	"sqlLinesOf":             sqlLinesOf,
	"sqlListGroup":           sqlListGroup,
	"sqlListJoins":           sqlListJoins,
	"sqlListSteps":           sqlListSteps,
	"sqlLockJoins":           sqlLockJoins,
	"sqlLockLine":            sqlLockLine,
	"sqlLockSchema":          sqlLockSchema,
	"sqlLockWaits":           sqlLockWaits,
	"sqlLookAtStep":          sqlLookAtStep,
	"sqlNote":                sqlNote,
	"sqlNoteJoin":            sqlNoteJoin,
	"sqlNoted":               sqlNoted,
	"sqlOldJoins":            sqlOldJoins,
	"sqlOldTransactions":     sqlOldTransactions,
	"sqlOldWorkers":          sqlOldWorkers,
	"sqlPauses":              sqlPauses,
	"sqlRecordToAttach":      sqlRecordToAttach,
	"sqlReport":              sqlReport,
	"sqlRetainSaga":          sqlRetainSaga,
	"sqlSagaState":           sqlSagaState,
	"sqlSagasBefore":         sqlSagasBefore,
	"sqlSeal":                sqlSeal,
	"sqlSeeGroup":            sqlSeeGroup,
	"sqlSeeWorker":           sqlSeeWorker,
	"sqlStopWorker":          sqlStopWorker,
	"sqlSetVersion":          fmt.Sprintf(sqlSetVersion, schemaVersion, schemaVersion),
	"sqlStartJoin":           sqlStartJoin,
	"sqlStats":               sqlStats,
	"sqlStepOfRecord":        sqlStepOfRecord,
	"sqlTaken":               sqlTaken,
	"sqlTopicsOfLanes":       sqlTopicsOfLanes,
	"sqlUndelivered":         sqlUndelivered,
	"sqlUnrouted":            sqlUnrouted,
	"sqlUpdateSaga":          sqlUpdateSaga,
	"sqlUsableIndexes":       sqlUsableIndexes,
	"sqlVersions":            sqlVersions,
	"sqlWorkers":             sqlWorkers,
}

// Texts returns the statements as the driver gets them. Statements that read with and without
// locks have two: see notLocked.
func Texts() map[string]string {
	texts := map[string]string{}
	for name, template := range Statements {
		s := &Store{sql: &queries{schema: DefaultSchema, table: DefaultTable}}
		c := call{template: template, looks: strings.Contains(template, notLocked)}
		texts[name] = c.text(s)
		if s.versioned.Store(true); c.looks {
			texts[name+", versioned"] = c.text(s)
		}
	}
	return texts
}

// Permissions are the rights that Examine wants, and IndexNames the indexes.
func (s *Store) Permissions() (names []string) {
	for _, p := range s.permissions() {
		names = append(names, p.Permission+" "+p.Class+" "+p.Name)
	}
	return names
}

func (s *Store) IndexNames() ([]string, error) { return s.indexNames() }
