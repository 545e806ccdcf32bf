package sqlserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// The numbers of the errors by which SQL Server refuses a look at other sessions, and those by
// which Babelfish says that it has no such view.
var refusesLook = []int32{262, 297, 300, errNoObject}

// mostSessions bounds the sessions of each kind in a report.
const mostSessions = 10

const (
	sqlClock = `SELECT SYSUTCDATETIME(), SUSER_SNAME(), ISNULL(HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'VIEW DEFINITION'), 0)`

	// sqlLackingRights lists the rights of @rights that the user lacks, and whether it sees their
	// objects.
	sqlLackingRights = `SELECT r.Name, r.Class, r.Permission, CASE r.Class WHEN N'TYPE' THEN TYPE_ID(r.Name) ELSE OBJECT_ID(r.Name) END
FROM (SELECT JSON_VALUE([value], '$.name') AS Name, JSON_VALUE([value], '$.class') AS Class,
	JSON_VALUE([value], '$.permission') AS Permission FROM OPENJSON(@rights)) AS r
WHERE ISNULL(HAS_PERMS_BY_NAME(r.Name, r.Class, r.Permission), 0) = 0`

	// sqlUsableIndexes lists the indexes of the schema that are not disabled.
	sqlUsableIndexes = `SELECT i.name FROM sys.indexes AS i JOIN sys.objects AS o ON o.object_id = i.object_id
WHERE o.schema_id = SCHEMA_ID(@name) AND i.name IS NOT NULL AND i.is_disabled = 0`

	// sqlOldTransactions lists the transactions of other sessions that have written to the database
	// and are older than @seconds.
	sqlOldTransactions = `SELECT TOP (@most) s.session_id, ISNULL(s.program_name, N''), s.status,
	DATEDIFF_BIG(MILLISECOND, d.database_transaction_begin_time, GETDATE())
FROM sys.dm_tran_database_transactions AS d JOIN sys.dm_tran_session_transactions AS t ON t.transaction_id = d.transaction_id
JOIN sys.dm_exec_sessions AS s ON s.session_id = t.session_id
WHERE d.database_id = DB_ID() AND s.session_id <> @@SPID AND d.database_transaction_begin_time < DATEADD(SECOND, -@seconds, GETDATE())
ORDER BY d.database_transaction_begin_time`

	// sqlLockWaits lists the requests in the database that have waited for a lock for more than
	// @limit milliseconds.
	sqlLockWaits = `SELECT TOP (@most) r.session_id, ISNULL(s.program_name, N''), r.wait_type,
	CAST(r.wait_time AS BIGINT), r.blocking_session_id,
	ISNULL(b.program_name, N''), ISNULL(b.status, N'')
FROM sys.dm_exec_requests AS r JOIN sys.dm_exec_sessions AS s ON s.session_id = r.session_id
LEFT JOIN sys.dm_exec_sessions AS b ON b.session_id = r.blocking_session_id
WHERE r.database_id = DB_ID() AND r.wait_type LIKE N'LCK%' AND r.wait_time > @limit
ORDER BY r.wait_time DESC`
)

// Examine looks for missing rights and indexes, for transactions and lock waits that last too
// long, and for another time than this machine's. The rights are those of [Store.Grants], whatever
// the tasks. To see other sessions it needs VIEW SERVER STATE. No SQL Server has run it yet: see
// "Tested on". See roles.Examiner.
func (s *Store) Examine(ctx context.Context, request roles.ExamineRequest) (roles.Examination, error) {
	var e roles.Examination
	err := s.usable(ctx)
	if err == nil {
		err = s.examine(ctx, request, &e)
	}
	return e, s.explain(ctx, "examine", err)
}

func (s *Store) examine(ctx context.Context, request roles.ExamineRequest, e *roles.Examination) error {
	x := examiner{s: s, request: request, e: e}
	for _, step := range []func(context.Context) error{s.checkSchema, x.clock, x.rights, x.indexes, x.transactions, x.locks} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	s.admission.Examine(e, s.handlers(), moreConns)
	return nil
}

// examiner makes one examination.
type examiner struct {
	s       *Store
	request roles.ExamineRequest
	e       *roles.Examination
	user    string
	// seesAll: the user sees each object of the database.
	seesAll bool
}

func (x *examiner) look(ctx context.Context, template string, row reader, args ...any) error {
	return x.s.do(ctx, x.s.db, call{template: template, args: args, sets: []reader{row}, looks: true})
}

func (x *examiner) clock(ctx context.Context) error {
	asked := time.Now()
	return x.look(ctx, sqlClock, func(scan func(...any) error) error {
		var now time.Time
		if err := scan(&now, &x.user, &x.seesAll); err != nil {
			return err
		}
		x.e.AddClock(x.request, asked, now, time.Now())
		return nil
	})
}

// permission is a right of Grants.
type permission struct {
	Name       string `json:"name"`
	Class      string `json:"class"`
	Permission string `json:"permission"`
}

var grantLine = regexp.MustCompile(`^GRANT (.+) ON (TYPE::)?(\[.+\]) TO `)

// permissions takes the rights from the statements of Grants.
func (s *Store) permissions() (all []permission) {
	for _, statement := range s.Grants("x") {
		found := grantLine.FindStringSubmatch(statement)
		class := "OBJECT"
		if found[2] != "" {
			class = "TYPE"
		}
		for name := range strings.SplitSeq(found[1], ", ") {
			all = append(all, permission{found[3], class, name})
		}
	}
	return all
}

func (x *examiner) rights(ctx context.Context) error {
	text, err := json.Marshal(x.s.permissions())
	if err != nil {
		return err
	}
	return x.look(ctx, sqlLackingRights, func(scan func(...any) error) error {
		var p permission
		var object *int64
		if err := scan(&p.Name, &p.Class, &p.Permission, &object); err != nil {
			return err
		}
		if object == nil && x.seesAll {
			f := storekit.MissingPart(strings.ToLower(p.Class), p.Name, "Calls that name it fail.", true)
			if !slices.ContainsFunc(x.e.Findings, func(other roles.Finding) bool { return other.Subject == f.Subject }) {
				x.e.Add(f)
			}
			return nil
		}
		on := p.Name
		if p.Class == "TYPE" {
			on = "TYPE::" + on
		}
		x.e.Add(roles.Finding{
			Code: "right_missing", Failure: true, Subject: p.Permission + " ON " + on,
			Text:   fmt.Sprintf("The user %s lacks %s on %s, which the store needs, or somebody has dropped it.", x.user, p.Permission, on),
			Remedy: "Run the statements of Store.Grants, or of grants.sql, for the user's role.",
		})
		return nil
	}, named("rights", string(text)))
}

var indexName = regexp.MustCompile(`\[(IX_Outbox_?\w+)\]`)

// indexNames are those in the files of the schema.
func (s *Store) indexNames() (names []string, err error) {
	err = fs.WalkDir(schemaFiles, "schema", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(schemaFiles, path)
		for _, found := range indexName.FindAllString(string(text), -1) {
			if name := strings.Trim(s.sql.expand(found), "[]"); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return err
	})
	return names, err
}

func (x *examiner) indexes(ctx context.Context) error {
	names, err := x.s.indexNames()
	if err != nil {
		return err
	}
	usable := map[string]bool{}
	err = x.look(ctx, sqlUsableIndexes, func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		usable[name] = true
		return err
	}, named("name", x.s.config.Schema))
	if err != nil {
		return err
	}
	if len(usable) == 0 {
		x.e.Skip("The indexes were not examined, because the user %s sees none: it lacks rights on the tables.", x.user)
		return nil
	}
	for _, name := range names {
		if !usable[name] {
			effect := "Or it is disabled (ALTER INDEX … REBUILD). Calls that need it read the whole table: they become slower with each record."
			x.e.Add(storekit.MissingPart("index", name, effect, false))
		}
	}
	return nil
}

// session names a session for people.
func session(id int, program string) string {
	if program == "" {
		return fmt.Sprintf("session %d", id)
	}
	return fmt.Sprintf("session %d (%s)", id, program)
}

// skipped reports a look that the server refuses.
func (x *examiner) skipped(what string, err error) error {
	if err == nil || !slices.Contains(refusesLook, number(err)) {
		return err
	}
	x.e.Skip("%s were not examined, because the user %s lacks VIEW SERVER STATE (on Azure SQL VIEW DATABASE STATE).", what, x.user)
	return nil
}

func (x *examiner) transactions(ctx context.Context) error {
	err := x.look(ctx, sqlOldTransactions, func(scan func(...any) error) error {
		var id int
		var program, status string
		var age int64
		if err := scan(&id, &program, &status, &age); err != nil {
			return err
		}
		open := time.Duration(age) * time.Millisecond
		x.e.Add(roles.Finding{
			Code: "old_transaction", Subject: session(id, program), Since: time.Now().Add(-open),
			Text: fmt.Sprintf("The transaction of %s (%s) has been open for %v. It keeps its locks, and the server keeps old versions of rows and "+
				"its log for it.", session(id, program), status, open.Round(time.Second)),
			Remedy: fmt.Sprintf("Find out why it stays open, and end it: KILL %d;", id),
		})
		return nil
	}, named("most", mostSessions), named("seconds", int64(x.request.OpenTransaction/time.Second)))
	return x.skipped("Transactions of other sessions", err)
}

func (x *examiner) locks(ctx context.Context) error {
	err := x.look(ctx, sqlLockWaits, func(scan func(...any) error) error {
		var id, blocker int
		var program, lock, blocking, status string
		var waited int64
		if err := scan(&id, &program, &lock, &waited, &blocker, &blocking, &status); err != nil {
			return err
		}
		waits := time.Duration(waited) * time.Millisecond
		x.e.Add(roles.Finding{
			Code: "lock_wait", Failure: true, Subject: session(id, program), Since: time.Now().Add(-waits),
			Text: fmt.Sprintf("The %s has waited for %v for a lock (%s) of %s, which is %s.",
				session(id, program), waits.Round(time.Second), lock, session(blocker, blocking), status),
			Remedy: fmt.Sprintf("Find out why that session holds its lock for so long, and end its transaction: KILL %d;", blocker),
		})
		return nil
	}, named("most", mostSessions), named("limit", x.request.LockWait.Milliseconds()))
	return x.skipped("Lock waits", err)
}
