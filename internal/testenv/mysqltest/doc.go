// Package mysqltest gives tests a MariaDB or a MySQL: the one that the environment names, or else the MariaDB of the machine, which it
// starts. Without either it skips them.
package mysqltest
