package testenv

import "syscall"

// Memory returns a directory in memory for the files of servers. Creating and dropping a
// database there takes a third of the time, and MongoDB would otherwise wait for the disk
// with any setting. It returns "" if there is no such directory with enough room. If all
// tests run, they need more, because some have a million rows.
func Memory() string {
	const dir = "/dev/shm"
	enough := uint64(1 << 30)
	if All() {
		enough = 8 << 30
	}
	var room syscall.Statfs_t
	// The mode 2 is W_OK.
	if syscall.Statfs(dir, &room) != nil || uint64(room.Bsize)*room.Bavail < enough || syscall.Access(dir, 2) != nil {
		return ""
	}
	return dir
}
