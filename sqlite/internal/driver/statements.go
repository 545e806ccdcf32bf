package driver

// hot are the statements of claims, settlements and appends, which are prepared once.
var hot = []string{
	sqlLock, sqlState, insertOne, insertTen, insertHundred, sqlTake, sqlAdd, sqlDueTopics, sqlDueNames, sqlPausing, sqlByLine,
	sqlByHeld, sqlComing, sqlFree, sqlInLine, sqlByKey, sqlNotes, sqlUnder, sqlHeldByKey, sqlKeys, sqlWhole, sqlFind, sqlLoad,
	sqlLease, sqlExtend, sqlChange, sqlDelete, sqlAckedSteps, sqlOpenAcked, sqlAck, sqlOpen, sqlDrop, sqlNote,
	sqlAlone, sqlFirst, sqlKeysOf, sqlPlaces,
}
