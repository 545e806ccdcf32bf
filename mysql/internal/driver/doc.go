// Package driver keeps what package engine needs in a MySQL or MariaDB database: see engine/driver for what that is.
//
// Transactions of the driver's own are in driver.go, and those of callers in within.go. text.go makes statements: each is sent as a text
// without parameters, so that it is one round trip on any connection, whatever its settings. Bytes and texts are hexadecimal digits in it,
// because what else a quoted text means depends on the sql_mode and the character set of the session.
//
// Its own transactions run at READ COMMITTED: each statement sees one moment, so a page is one statement. A claim in an order locks the
// row of its line before. Apply locks the rows that it writes by their places, compares them with what was read, and writes those that
// are the same.
package driver
