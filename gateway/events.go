package gateway

import (
	"context"
	"time"
)

// Events lets others look in: spans, metrics, logs. Functions left out do nothing. All must be quick and safe for
// concurrent use.
type Events struct {
	// Span begins a stage of a call (plan, admission, first batch); the function it returns ends it.
	Span func(ctx context.Context, stage string) (context.Context, func(error))
	// Stream begins with a DoGet that passed its plan. Of the functions it returns, sent is called for each step that
	// left, end once, when the call ends.
	Stream func(ctx context.Context, r Read) (sent func(Sent), end func(error))
	// Refused is a call without a valid identity; cause is for the log, never for the caller.
	Refused func(ctx context.Context, method, cause string)
	// Audit is one decision on a read: by GetFlightInfo, GetSchema or DoGet; err is nil when it is allowed.
	Audit func(ctx context.Context, r Read, err error)
	// Fault is our own bug: the caller saw only the id.
	Fault func(ctx context.Context, id string, err error)
}

// Read is who reads what.
type Read struct {
	Method   string
	Subject  string
	Tenant   string
	Dataset  string
	Snapshot string
	Plan     string
	Columns  []string // nil: all that are granted
	Rows     int64    // that the plan will deliver
}

// Sent is one step as it left.
type Sent struct {
	Rows     int64
	Bytes    int64         // of its messages
	Shared   int64         // of these, in shared memory
	DataWait time.Duration // spent waiting for the store and the decoder
	SendWait time.Duration // spent waiting for the client
}

func (e Events) withDefaults() Events {
	if e.Span == nil {
		e.Span = func(ctx context.Context, _ string) (context.Context, func(error)) { return ctx, func(error) {} }
	}
	if e.Stream == nil {
		e.Stream = func(context.Context, Read) (func(Sent), func(error)) { return func(Sent) {}, func(error) {} }
	}
	if e.Refused == nil {
		e.Refused = func(context.Context, string, string) {}
	}
	if e.Audit == nil {
		e.Audit = func(context.Context, Read, error) {}
	}
	if e.Fault == nil {
		e.Fault = func(context.Context, string, error) {}
	}
	return e
}
