package storekit

// LargestClaim is up to how many records the claims of a forwarder grow while there is a backlog, unless the store is a LargestClaimer.
const LargestClaim = 1000

// LargestClaimer is a role of stores that say up to how many records the claims of a forwarder should grow.
type LargestClaimer interface{ LargestClaim() int }
