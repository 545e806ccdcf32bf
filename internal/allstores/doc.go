// Package allstores tests what holds on every store: Watermill's own tests and
// components pass over a publisher and a subscriber, and each event is logged once.
// Nobody imports it, because go mod tidy keeps what the tests of an imported
// package need: a user of one store does not download the drivers of the others.
package allstores
