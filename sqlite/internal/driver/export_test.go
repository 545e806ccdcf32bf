package driver

// Statement is a statement as SQLite gets it.
type Statement struct{ Name, Text string }

var (
	hotNames = []string{
		"sqlLock", "sqlState", "insertOne", "insertTen", "insertHundred", "sqlTake", "sqlAdd", "sqlDueTopics", "sqlDueNames",
		"sqlPausing", "sqlByLine", "sqlByHeld", "sqlComing", "sqlFree", "sqlInLine", "sqlByKey", "sqlNotes", "sqlUnder",
		"sqlHeldByKey", "sqlKeys", "sqlWhole", "sqlFind", "sqlLoad", "sqlLease", "sqlExtend", "sqlChange", "sqlDelete",
		"sqlAckedSteps", "sqlOpenAcked", "sqlAck", "sqlOpen", "sqlDrop", "sqlNote",
		"sqlAlone", "sqlFirst", "sqlKeysOf", "sqlPlaces",
	}
	// rest are the others that a worker, an operator or the janitor runs again and again.
	rest = []Statement{
		{"sqlByWaiting", sqlByWaiting}, {"sqlByDelayed", sqlByDelayed}, {"sqlByLease", sqlByLease}, {"sqlByEnded", sqlByEnded},
		{"sqlByExpiry", sqlByExpiry}, {"sqlByParked", sqlByParked}, {"sqlByDone", sqlByDone}, {"sqlByUnrouted", sqlByUnrouted},
		{"sqlByStep", sqlByStep}, {"sqlByWaiter", sqlByWaiter}, {"sqlByOpen", sqlByOpen}, {"sqlWaiting", sqlWaiting},
		{"sqlDelayed", sqlDelayed}, {"sqlLeased", sqlLeased}, {"sqlProcessed", sqlProcessed}, {"sqlDead", sqlDead},
		{"sqlCountReady", sqlCountReady}, {"sqlCountHeld", sqlCountHeld}, {"sqlCountWait", sqlCountWait},
		{"sqlCountLeased", sqlCountLeased}, {"sqlCountDone", sqlCountDone}, {"sqlCountDead", sqlCountDead},
		{"sqlCountPark", sqlCountPark}, {"sqlAfter", sqlAfter}, {"sqlTopicsOf", sqlTopicsOf}, {"sqlStandings", sqlStandings},
		{"sqlReplace", sqlReplace}, {"sqlPutApart", sqlPutApart}, {"sqlNoApart", sqlNoApart},
		{"sqlAttach", sqlAttach}, {"sqlUnroute", sqlUnroute}, {"sqlAdopt", sqlAdopt},
		{"sqlForget", sqlForget}, {"sqlPut", sqlPut}, {"sqlEntries", sqlEntries}, {"sqlCountEntries", sqlCountEntries},
		{"sqlScan", sqlScan}, {"sqlRange", sqlRange}, {"sqlOld", sqlOld}, {"sqlDeleteEntries", sqlDeleteEntries},
		{"sqlBump", sqlBump}, {"sqlFirstPlace", sqlFirstPlace},
	}
)

// Texts returns all statements, those of claims, settlements and appends first.
func (d *Driver) Texts() []Statement {
	var all []Statement
	for i, text := range hot {
		all = append(all, Statement{hotNames[i], text})
	}
	all = append(all, rest...)
	for i := range all {
		all[i].Text = d.names.in(all[i].Text)
	}
	return all
}
