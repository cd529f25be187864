// Package e2e tests headrace as its users meet it: the built binary, real ports, real clients.
package e2e

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binary is the program under test, built once for all tests by TestMain.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "headrace-e2e-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "headrace")
	flag.Parse()
	// With the race detector in the program under test, not only in the tests; leases say who took them.
	args := []string{"build", "-tags", "leases", "-o", binary}
	if !testing.Short() {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "../cmd/headrace")...)
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		os.Exit(1)
	}
	built, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		panic(err)
	}
	os.Setenv("GOCACHE", strings.TrimSpace(string(built)))   // where the compiler has all but what changed
	os.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache")) // where gateways keep snapshots
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// server is a running gateway process.
type server struct {
	t          *testing.T
	cmd        *exec.Cmd
	uri, admin string
	log        *logBuffer
	ended      bool
	drained    bool
}

// logBuffer keeps what a process says; it may be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serve starts `headrace serve` with the given arguments on free ports and waits until it listens. When the test ends,
// the process is drained, and must leave nothing behind: no lease, no memory, no race.
func serve(t *testing.T, args ...string) *server {
	t.Helper()
	return serveOn(t, "127.0.0.1:0", args...)
}

// serveDataset serves a folder as the dataset d, by a config with more lines of the caller's.
func serveDataset(t *testing.T, dir string, more ...string) *server {
	t.Helper()
	return serveKeyed(t, dir, "schema: strict", more...)
}

// serveKeyed is serveDataset with keys of the dataset's own, such as "schema: widen".
func serveKeyed(t *testing.T, dir, keys string, more ...string) *server {
	t.Helper()
	lines := append([]string{"listen: 127.0.0.1:0", "admin: 127.0.0.1:0", fmt.Sprintf("datasets: [{name: d, url: %q, %s}]", dir, keys)}, more...)
	return serveOn(t, "", "--config", writeConfig(t, lines...))
}

// writeConfig writes a config that lets everybody in.
func writeConfig(t *testing.T, lines ...string) string {
	t.Helper()
	config := filepath.Join(t.TempDir(), "headrace.yaml")
	text := strings.Join(append([]string{"auth: {mode: none}"}, lines...), "\n")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

func serveOn(t *testing.T, listen string, args ...string) *server {
	t.Helper()
	return serveBy(t, binary, listen, args...)
}

// serveBy has another build of the program serve.
func serveBy(t *testing.T, program, listen string, args ...string) *server {
	t.Helper()
	args = append([]string{"serve"}, args...)
	if listen != "" {
		args = append(args, "--listen", listen, "--admin", "127.0.0.1:0")
	}
	s := &server{t: t, cmd: exec.Command(program, args...), log: &logBuffer{}}
	s.cmd.Stderr = s.log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	lines := bufio.NewReader(out)
	s.uri = s.announced(lines, "listening ")
	s.admin = s.announced(lines, "admin ")
	return s
}

func (s *server) announced(lines *bufio.Reader, word string) string {
	s.t.Helper()
	line, err := lines.ReadString('\n')
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), word)
	if err != nil || !ok {
		s.t.Fatalf("the gateway printed %q, want %q...\n%s", line, word, s.log)
	}
	return rest
}

// stop drains the gateway and checks what it says at the end.
func (s *server) stop() {
	if s.ended {
		return
	}
	s.ended = true
	s.drain()
	done := make(chan error, 1)
	var wait sync.WaitGroup
	wait.Go(func() { done <- s.cmd.Wait() })
	select {
	case err := <-done:
		if err != nil {
			s.t.Errorf("the gateway ended with %v\n%s", err, s.log)
		}
	case <-time.After(90 * time.Second):
		_ = s.cmd.Process.Kill()
		s.t.Errorf("the gateway did not end\n%s", s.log)
	}
	wait.Wait()
	for _, bad := range []string{`"level":"ERROR"`, "DATA RACE", "panic:"} {
		if strings.Contains(s.log.String(), bad) {
			s.t.Errorf("the gateway's log has %q:\n%s", bad, s.log)
		}
	}
}

// drain asks the gateway to end in good order; a second signal would end it at once.
func (s *server) drain() {
	if !s.drained {
		s.drained = true
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
	}
}

// kill ends the gateway without a word, as a crash does.
func (s *server) kill() {
	s.ended = true
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// get fetches a page of the admin port.
func (s *server) get(path string) (int, string) {
	s.t.Helper()
	resp, err := http.Get(s.admin + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	_, _ = body.ReadFrom(resp.Body)
	return resp.StatusCode, body.String()
}

// run calls a command of the binary.
func run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	return out.String(), errOut.String(), err
}

// interpreter is a Python with pyarrow and the headrace package.
func interpreter(t *testing.T) string {
	t.Helper()
	path := os.Getenv("HEADRACE_PYTHON")
	if path == "" {
		path = "../.venv/bin/python"
	}
	abs, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(abs)
	}
	if err != nil {
		if os.Getenv("HEADRACE_PYTHON") != "" {
			t.Fatalf("HEADRACE_PYTHON: %v", err)
		}
		t.Skip("no Python environment: run make venv")
	}
	return abs
}

// prelude is what every script begins with.
const prelude = `
import json, os, sys, time
from pathlib import Path
import numpy as np, pyarrow as pa, pyarrow.flight as fl, pyarrow.parquet as pq

def auth(token):
    return fl.FlightCallOptions(headers=[(b"authorization", b"Bearer " + token.encode())])

def request(**fields):
    return fl.FlightDescriptor.for_command(json.dumps(fields).encode())

def read(client, **fields):
    info = client.get_flight_info(request(**fields))
    return client.do_get(info.endpoints[0].ticket).read_all()
`

// python runs a script, which fails the test by failing itself, and returns what it prints.
func python(t *testing.T, script string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, interpreter(t), append([]string{"-c", prelude + script}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH=../python/src")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("python: %v\n%s%s", err, out.String(), errOut.String())
	}
	return out.String()
}
