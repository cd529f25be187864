package bucket

import "context"

type waitKey struct{}

// Waiting returns a context under which wait is called when a read begins to
// wait for a store, and what that returns when the read goes on: whoever reads
// may have something to give up meanwhile. Reads of several goroutines call it
// at the same time.
func Waiting(ctx context.Context, wait func() (back func())) context.Context {
	return context.WithValue(ctx, waitKey{}, wait)
}

// waits calls it.
func waits(ctx context.Context) (back func()) {
	if wait, ok := ctx.Value(waitKey{}).(func() func()); ok && wait != nil {
		return wait()
	}
	return func() {}
}

// unwatched is a context of reads that nobody waits for.
func unwatched(ctx context.Context) context.Context {
	return context.WithValue(ctx, waitKey{}, nil)
}
