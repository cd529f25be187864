//go:build !linux

package frame

// largePages does nothing where pages have one size.
func largePages([]byte) {}

// processor is the same one for everybody where the system does not tell.
func processor() int { return 0 }
