package sqlite_test

import (
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storekit"
)

// A store has all roles but that of several members.
var (
	_ roles.Examiner   = (*sqlite.Store)(nil)
	_ roles.Idle       = (*sqlite.Store)(nil)
	_ roles.Inbox      = (*sqlite.Store)(nil)
	_ roles.Joins      = (*sqlite.Store)(nil)
	_ roles.Pauses     = (*sqlite.Store)(nil)
	_ roles.Repairs    = (*sqlite.Store)(nil)
	_ roles.Sagas      = (*sqlite.Store)(nil)
	_ roles.Transactor = (*sqlite.Store)(nil)
	_ roles.Waker      = (*sqlite.Store)(nil)

	_ storekit.CommitJudge = (*sqlite.Store)(nil)
)
