package wire

// WarmMeta is a line of the answer of headrace.warm: how far it is.
type WarmMeta struct {
	Blocks int64 `json:"blocks"` // that the plan reads
	Seen   int64 `json:"seen"`   // of them, so far
	Kept   int64 `json:"kept"`   // of those, that are there for the streams to come
	Loaded int64 `json:"loaded"` // bytes in memory that were not there before
	Mapped int64 `json:"mapped"` // blocks seen that lie in mapped files and are not kept
	Full   bool  `json:"full"`   // it ended because all memory that nobody needs is in use
}
