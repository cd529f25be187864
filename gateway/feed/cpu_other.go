//go:build !unix

package feed

import "time"

// processorTime is not known here: the number of decoders stays as it is.
func processorTime() (used time.Duration, known bool) { return 0, false }
