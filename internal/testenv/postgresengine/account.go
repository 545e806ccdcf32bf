package postgresengine

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
)

// nobody is the user without rights. Servers run as nobody if there is no user "postgres".
const nobody = 65534

// account is the user that servers run as.
type account struct{ uid, gid int }

// serverAccount returns nil if servers run as the user of this process. As root they need
// another user, because PostgreSQL and PgBouncer refuse to run as root.
func serverAccount() *account {
	if os.Getuid() != 0 {
		return nil
	}
	if found, err := user.Lookup("postgres"); err == nil {
		uid, err1 := strconv.Atoi(found.Uid)
		gid, err2 := strconv.Atoi(found.Gid)
		if err1 == nil && err2 == nil && uid != 0 {
			return &account{uid, gid}
		}
	}
	return &account{nobody, nobody}
}

// asAccount makes a command run as the servers' account.
func asAccount(cmd *exec.Cmd) {
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	// The programs may not support the language of the machine.
	cmd.Env = append(cmd.Env, "LC_ALL=C")
	cmd.SysProcAttr = childAttributes(serverAccount())
}

// makeDir makes a directory that belongs to the servers' account.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make a directory for the server: %w", err)
	}
	return giveAway(dir)
}

func giveAway(name string) error {
	a := serverAccount()
	if a == nil {
		return nil
	}
	if err := os.Chown(name, a.uid, a.gid); err != nil {
		return fmt.Errorf("give a file to the user of the server: %w", err)
	}
	return nil
}
