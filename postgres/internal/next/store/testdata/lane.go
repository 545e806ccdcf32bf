package postgres

// Lane is the lane of tests of the store before the switch. The store on the engine has both.
type Lane string

const (
	LaneRows Lane = "rows"
	LaneLog  Lane = "log"
)
