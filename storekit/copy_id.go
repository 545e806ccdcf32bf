package storekit

import (
	"crypto/sha256"

	"github.com/outmill/outmill"
)

// CopyID returns the id of a group's record of a message whose first record, or row of a log, has the id. The time
// and the count of the id stay, so that the copies of a message stand where it stands in the order of the ids. Of the
// last 8 bytes, all bits but the first two are XORed with those of the SHA-256 of the group's name: CopyID of a
// copy's id and its group is the first id again, and every database can compute it.
func CopyID(id outmill.WorkItemID, group string) outmill.WorkItemID {
	const random, variantBits = 8, 0xc0
	sum := sha256.Sum256([]byte(group))
	sum[0] &^= variantBits
	for i := random; i < len(id); i++ {
		id[i] ^= sum[i-random]
	}
	return id
}
