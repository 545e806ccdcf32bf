// Package drivertest compares a driver with package memdriver, the reference. Its walks call both in the same random
// way, and compare what each search, page and change returns and leaves.
//
// It finds what a driver does wrong by itself. What a store on it promises, and what transactions that run at the same
// time must not do, is for package storetest.
package drivertest
