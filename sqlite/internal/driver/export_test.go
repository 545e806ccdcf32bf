package driver

import "slices"

// AtLeast is atLeast.
var AtLeast = atLeast

// Statement is a statement as SQLite gets it.
type Statement struct{ Name, Text string }

// all are those of claims, settlements and appends first, and then those that a worker, an operator or the janitor runs again
// and again.
var all = []Statement{
	{"sqlLock", sqlLock}, {"sqlState", sqlState}, {"insertOne", insertOne}, {"insertTen", insertTen},
	{"insertHundred", insertHundred}, {"sqlTake", sqlTake}, {"sqlAdd", sqlAdd}, {"sqlDueTopics", sqlDueTopics},
	{"sqlDueNames", sqlDueNames}, {"sqlPausing", sqlPausing}, {"sqlReady", sqlReady}, {"sqlByComing", sqlByComing},
	{"sqlByDue", sqlByDue}, {"sqlByPlace", sqlByPlace}, {"sqlByKey", sqlByKey}, {"sqlNotes", sqlNotes}, {"sqlUnder", sqlUnder},
	{"sqlByKeyed", sqlByKeyed}, {"sqlByPaused", sqlByPaused},
	{"sqlKeys", sqlKeys}, {"sqlWhole", sqlWhole}, {"sqlFind", sqlFind}, {"sqlLoad", sqlLoad},
	{"sqlLease", sqlLease}, {"sqlExtend", sqlExtend}, {"sqlChange", sqlChange}, {"sqlDelete", sqlDelete},
	{"sqlAcked", sqlAcked}, {"sqlOpen", sqlOpen},
	{"sqlDrop", sqlDrop}, {"sqlNote", sqlNote},
	{"sqlPlaces", sqlPlaces}, {"sqlHeld", sqlHeld}, {"sqlTimed", sqlTimed}, {"sqlSettled", sqlSettled},
	{"sqlByEnded", sqlByEnded}, {"sqlByExpiry", sqlByExpiry}, {"sqlByParked", sqlByParked}, {"sqlByDone", sqlByDone},
	{"sqlByUnrouted", sqlByUnrouted}, {"sqlByStep", sqlByStep}, {"sqlByWaiter", sqlByWaiter}, {"sqlByOpen", sqlByOpen},
	{"count sqlReady", counted(sqlReady)}, {"count sqlHeld", counted(sqlHeld)},
	{"count sqlTimed", counted(sqlTimed)}, {"count sqlSettled", counted(sqlSettled)},
	{"count sqlByComing", counted(sqlByComing)}, {"count sqlByParked", counted(sqlByParked)},
	{"sqlAfter", sqlAfter}, {"sqlLike", sqlLike}, {"sqlTopicsOf", sqlTopicsOf}, {"sqlReplace", sqlReplace}, {"sqlPutApart", sqlPutApart},
	{"sqlNoApart", sqlNoApart}, {"sqlAttach", sqlAttach}, {"sqlUnroute", sqlUnroute}, {"sqlAdopt", sqlAdopt},
	{"sqlForget", sqlForget}, {"sqlPut", sqlPut}, {"sqlEntries", sqlEntries}, {"sqlCountEntries", sqlCountEntries},
	{"sqlRange", sqlRange}, {"sqlOld", sqlOld}, {"sqlDeleteEntries", sqlDeleteEntries},
	{"sqlBump", sqlBump}, {"sqlFirstPlace", sqlFirstPlace},
}

// Texts returns all statements.
func (d *Driver) Texts() []Statement {
	texts := slices.Clone(all)
	for i := range texts {
		texts[i].Text = d.text(texts[i].Text)
	}
	return texts
}
