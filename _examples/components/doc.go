// Package components has no program: its tests run the component of Watermill
// whose dependency the library does not have, components/metrics, on every store.
package components
