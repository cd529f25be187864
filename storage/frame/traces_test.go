//go:build leases

package frame

const tracing = true
