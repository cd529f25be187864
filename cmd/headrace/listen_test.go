package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/headrace/headrace/gateway/shm"
)

func TestAbandonedSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	left, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	left.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	l, err := listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := flightURI(l, false); got != "grpc+unix://"+path {
		t.Errorf("uri %s", got)
	}
	if _, err := listen("unix:" + path); err == nil {
		t.Error("a socket in use was taken over")
	}
}

// Trainers in other containers are other users; what lets them in is a key.
func TestSharedMemoryIsForAllUsers(t *testing.T) {
	if !shm.Supported {
		t.Skip("no shared memory")
	}
	path := filepath.Join(t.TempDir(), "shm.sock")
	a := &app{}
	if err := a.share(path, 1<<20); err != nil {
		t.Fatal(err)
	}
	defer a.shm.Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o666 {
		t.Errorf("the socket's permissions are %o", got)
	}
}

func TestNoFileIsReplacedBySocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen("unix:" + path); err == nil {
		t.Error("listening on a file")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "precious" {
		t.Errorf("the file is %q, %v", text, err)
	}
}

func TestShares(t *testing.T) {
	for _, memory := range []int64{128 << 20, 200 << 20, 1 << 30, 64 << 30} {
		idle, limit, err := shares(memory)
		if again := memoryFor(limit); again < memory-64 || again > memory+64 {
			t.Errorf("%d bytes for streams are what %d gives, not %d", limit, memory, again)
		}
		if err != nil || idle <= 0 || limit <= 0 || idle+limit > memory-memory/8 {
			t.Errorf("%d: idle %d, limit %d, %v", memory, idle, limit, err)
		}
	}
	if _, _, err := shares(128<<20 - 1); err == nil {
		t.Error("too little memory was taken")
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %s", n, got)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 5 << 30: "5.0 GiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %s", n, got)
		}
	}
}
