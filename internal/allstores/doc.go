// Package allstores has the tests that run on every store: Watermill's own tests and
// components work with the publisher and the subscriber, and each event is logged once.
// No package imports it. go mod tidy keeps the dependencies of tests only for packages that
// are imported, so a user of one store does not download the drivers of the others.
package allstores
