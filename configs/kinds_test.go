package configs

import (
	"strings"
	"testing"
	"time"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1048576": 1 << 20, "8GiB": 8 << 30, "500MB": 500e6, "1.5GiB": 3 << 29, "64 MiB": 64 << 20, "1kB": 1000, "1KB": 1000, "2KiB": 2048, "3TiB": 3 << 40, "7B": 7,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "GiB", "-1", "-1GiB", "8G", "8gib", "8 G iB", "1e9", "0x10", "inf", "NaN", "8GiBs", "1_000", "9999999999TiB", "1.2.3MB", "8Gi"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "0s": 0, "30s": 30 * time.Second, "1m30s": 90 * time.Second, "250ms": 250 * time.Millisecond, "2160h": 2160 * time.Hour} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "30", "-1s", "1d", "soon", "99999999h"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}

func TestAddresses(t *testing.T) {
	for _, text := range []string{"127.0.0.1:0", ":8815", "[::1]:65535", "host.example.com:1", "unix:/run/x.sock"} {
		if err := checkAddress(text); err != nil {
			t.Error(err)
		}
	}
	for _, text := range []string{
		"", "8815", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:grpc", "127.0.0.1:-1", "::1:8815",
		"grpc://127.0.0.1:1", "http://host:1", "unix:", "unix:run/x", "unix:///" + strings.Repeat("x", 200), "a b:1", "user@host:1",
	} {
		if checkAddress(text) == nil {
			t.Errorf("%q is allowed", text)
		}
	}
}

func TestBooleans(t *testing.T) {
	for _, text := range []string{"yes", "True", "1", "on", ""} {
		if _, err := parseBool(text); err == nil {
			t.Errorf("%q is allowed", text)
		}
	}
}

func TestRelativePaths(t *testing.T) {
	for text, want := range map[string]string{"": "", "k.pem": "/etc/h/k.pem", "../k": "/etc/k", "/abs": "/abs"} {
		if got := resolve("/etc/h", text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	for text, want := range map[string]string{"data": "/etc/h/data", "/data": "/data", "file:///data": "file:///data", "file://localhost/d": "file://localhost/d"} {
		if got, err := parseLocation("/etc/h", text); err != nil || got != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
