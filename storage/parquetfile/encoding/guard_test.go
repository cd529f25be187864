package encoding

const (
	guarded = 1 << 20 // bytes that room has, at most
	canary  = 0xA5    // in bytes that must stay as they are
)
