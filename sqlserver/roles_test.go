package sqlserver_test

import (
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlserver"
	"github.com/outmill/outmill/storekit"
)

// A store has all roles but that of several members.
var (
	_ roles.Examiner   = (*sqlserver.Store)(nil)
	_ roles.Idle       = (*sqlserver.Store)(nil)
	_ roles.Inbox      = (*sqlserver.Store)(nil)
	_ roles.Joins      = (*sqlserver.Store)(nil)
	_ roles.Pauses     = (*sqlserver.Store)(nil)
	_ roles.Repairs    = (*sqlserver.Store)(nil)
	_ roles.Sagas      = (*sqlserver.Store)(nil)
	_ roles.Transactor = (*sqlserver.Store)(nil)
	_ roles.Waker      = (*sqlserver.Store)(nil)

	_ storekit.CommitJudge = (*sqlserver.Store)(nil)
)
