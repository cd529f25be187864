//go:build !amd64

package encoding

var wide32 [33]bool

func wideUnpack32([]uint32, []byte, int) int { return 0 }

func wideSums32(_ []int32, _ []byte, _ int, _, last int32) (int, int32) { return 0, last }

func wideSums64(_ []int64, _ []byte, _ int, _, last int64) (int, int64) { return 0, last }

func wideJoin(_, _ []byte, _, _ int) int { return 0 }
