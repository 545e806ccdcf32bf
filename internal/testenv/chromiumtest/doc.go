// Package chromiumtest drives a headless Chromium for tests of pages: the one that
// OUTMILL_TEST_CHROMIUM names, otherwise the one on PATH. It speaks the DevTools protocol over
// pipes, so that it needs no package outside the standard library and opens no port.
package chromiumtest
