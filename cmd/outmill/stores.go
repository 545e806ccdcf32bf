package main

// The stores that the tool can open register themselves.
import (
	_ "github.com/outmill/outmill/sqlite"
)
