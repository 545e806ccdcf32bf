package tenants

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/outmill/outmill"
)

// ownerFor is the owner of claims in this member: the caller's, or, after a claim has failed in
// the member, one derived from it.
func (m *member) ownerFor(owner outmill.OwnerToken) outmill.OwnerToken {
	m.mu.Lock()
	epoch := m.epoch
	m.mu.Unlock()
	if epoch == 0 {
		return owner
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(append(owner[:], m.name()...), epoch))
	return outmill.OwnerToken(sum[:16])
}

func (m *member) nextEpoch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch++
}
