package storekit

import "time"

// CloseWithin is how long the Close of a store that opened its connections waits for the calls that
// still use them. Then it closes the connections under these calls.
const CloseWithin = 5 * time.Second
