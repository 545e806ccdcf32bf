package postgres_test

import "github.com/outmill/outmill/postgres"

// bothLanes are the lanes of tests of the store before the switch.
var bothLanes = []postgres.Lane{postgres.LaneLog}
