//go:build !linux

package frame

// largePages does nothing where pages have one size.
func largePages([]byte) {}
