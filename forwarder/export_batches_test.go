package forwarder

import "sync/atomic"

// AlternateBatches has the claims of the forwarder alternate, two by two, between those that become batches and those that do not.
func AlternateBatches(f *Forwarder) {
	if f.whole == nil {
		return
	}
	var claims atomic.Int64
	f.whole = func() bool { return claims.Add(1)%4 < 2 }
}
