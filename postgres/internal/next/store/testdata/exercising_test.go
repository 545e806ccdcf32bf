package postgres_test

import "github.com/outmill/outmill/postgres"

const tapeSchema = "tape"

// exercising is a store whose plans are reported.
type exercising struct {
	store *postgres.Store
	told  *plans
}
