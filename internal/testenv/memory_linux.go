package testenv

import "syscall"

// Memory is a directory in memory, for the files of servers: a database is made and
// dropped there at a third of the cost, and MongoDB waits for the disk whatever it
// is told. It is "" where there is none with room enough: for a million rows that
// takes more.
func Memory() string {
	const dir = "/dev/shm"
	enough := uint64(1 << 30)
	if All() {
		enough = 8 << 30
	}
	var room syscall.Statfs_t
	// 2 is W_OK.
	if syscall.Statfs(dir, &room) != nil || uint64(room.Bsize)*room.Bavail < enough || syscall.Access(dir, 2) != nil {
		return ""
	}
	return dir
}
