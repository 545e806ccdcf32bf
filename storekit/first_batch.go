//go:build !outmill_crash

package storekit

// firstBatch is the BatchSize.Park of a BatchSize of zero.
const firstBatch = atOnce
