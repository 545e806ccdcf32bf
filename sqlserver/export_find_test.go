package sqlserver

import "maps"

func init() {
	maps.Copy(Statements, map[string]string{
		"sqlRecordsOf":              sqlRecordsOf,
		"sqlSearch":                 sqlSearch,
		"sqlSearchDead":             sqlSearchDead,
		"sqlSearchLeased":           sqlSearchLeased,
		"sqlSearchProcessed":        sqlSearchProcessed,
		"sqlSearchWaitingDead":      sqlSearchWaitingDead,
		"sqlSearchWaitingLeased":    sqlSearchWaitingLeased,
		"sqlSearchWaitingProcessed": sqlSearchWaitingProcessed,
		"sqlTopicsLeased":           sqlTopicsLeased,
		"sqlTopicsSettled":          sqlTopicsSettled,
	})
}
