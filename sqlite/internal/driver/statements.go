package driver

// statement is a statement and its name in this package.
type statement struct{ name, text string }

// hot are the statements of claims, settlements and appends, which are prepared once.
var hot = []statement{
	{"sqlLock", sqlLock}, {"sqlState", sqlState}, {"insertOne", insertOne}, {"insertTen", insertTen},
	{"insertHundred", insertHundred}, {"sqlTake", sqlTake}, {"sqlAdd", sqlAdd}, {"sqlDueTopics", sqlDueTopics},
	{"sqlDueNames", sqlDueNames}, {"sqlPausing", sqlPausing}, {"sqlByLine", sqlByLine}, {"sqlByHeld", sqlByHeld},
	{"sqlComing", sqlComing}, {"sqlFree", sqlFree}, {"sqlInLine", sqlInLine}, {"sqlByKey", sqlByKey},
	{"sqlNotes", sqlNotes}, {"sqlUnder", sqlUnder}, {"sqlHeldByKey", sqlHeldByKey}, {"sqlKeys", sqlKeys},
	{"sqlWhole", sqlWhole}, {"sqlFind", sqlFind}, {"sqlLoad", sqlLoad}, {"sqlLease", sqlLease},
	{"sqlExtend", sqlExtend}, {"sqlMove", sqlMove}, {"sqlSettle", sqlSettle}, {"sqlDelete", sqlDelete},
	{"sqlAckedSteps", sqlAckedSteps}, {"sqlOpenAcked", sqlOpenAcked}, {"sqlAck", sqlAck}, {"sqlOpen", sqlOpen},
	{"sqlDrop", sqlDrop}, {"sqlNote", sqlNote},
}

// rest are the others that a worker, an operator or the janitor runs again and again.
var rest = []statement{
	{"sqlByWaiting", sqlByWaiting}, {"sqlByDelayed", sqlByDelayed}, {"sqlByLease", sqlByLease},
	{"sqlByEnded", sqlByEnded}, {"sqlByExpiry", sqlByExpiry}, {"sqlByParked", sqlByParked}, {"sqlByDone", sqlByDone},
	{"sqlByUnrouted", sqlByUnrouted}, {"sqlByStep", sqlByStep}, {"sqlByWaiter", sqlByWaiter}, {"sqlByOpen", sqlByOpen},
	{"sqlWaiting", sqlWaiting}, {"sqlDelayed", sqlDelayed}, {"sqlLeased", sqlLeased}, {"sqlProcessed", sqlProcessed},
	{"sqlDead", sqlDead}, {"sqlCountReady", sqlCountReady}, {"sqlCountHeld", sqlCountHeld},
	{"sqlCountWait", sqlCountWait}, {"sqlCountLeased", sqlCountLeased}, {"sqlCountDone", sqlCountDone},
	{"sqlCountDead", sqlCountDead}, {"sqlCountPark", sqlCountPark}, {"sqlAfter", sqlAfter},
	{"sqlTopicsOf", sqlTopicsOf}, {"sqlStandings", sqlStandings}, {"sqlReplace", sqlReplace}, {"sqlAttach", sqlAttach},
	{"sqlMend", sqlMend}, {"sqlAdopt", sqlAdopt}, {"sqlForget", sqlForget}, {"sqlPut", sqlPut},
	{"sqlEntries", sqlEntries}, {"sqlCountEntries", sqlCountEntries}, {"sqlScan", sqlScan}, {"sqlRange", sqlRange},
	{"sqlOld", sqlOld}, {"sqlDeleteEntries", sqlDeleteEntries}, {"sqlBump", sqlBump},
}
