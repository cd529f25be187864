//go:build !linux

package main

import "errors"

// drop would take a file out of the page cache.
func drop(string) error { return errors.New("files can be dropped from the page cache on Linux only") }
