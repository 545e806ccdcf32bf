package mysql_test

import (
	"github.com/outmill/outmill/mysql"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// A store has all roles but that of several members.
var (
	_ roles.Examiner   = (*mysql.Store)(nil)
	_ roles.Idle       = (*mysql.Store)(nil)
	_ roles.Inbox      = (*mysql.Store)(nil)
	_ roles.Joins      = (*mysql.Store)(nil)
	_ roles.Pauses     = (*mysql.Store)(nil)
	_ roles.Repairs    = (*mysql.Store)(nil)
	_ roles.Sagas      = (*mysql.Store)(nil)
	_ roles.Transactor = (*mysql.Store)(nil)
	_ roles.Waker      = (*mysql.Store)(nil)

	_ storekit.CommitJudge = (*mysql.Store)(nil)
)
