package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// server is a child process that said where it listens.
type server struct {
	cmd *exec.Cmd
	uri string
}

// start runs a server until it prints "listening URI" as its first line.
func start(ctx context.Context, name string, args ...string) (*server, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{cmd: cmd}
	line, err := bufio.NewReader(out).ReadString('\n')
	uri, ok := strings.CutPrefix(strings.TrimSpace(line), "listening ")
	if err != nil || !ok {
		s.stop()
		return nil, fmt.Errorf("%s said %q instead of where it listens: %w", name, line, err)
	}
	s.uri = uri
	return s, nil
}

func (s *server) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // "signal: killed"
}

// cpu is the processor time that the server has used so far, user and system, over all its threads.
func (s *server) cpu() (time.Duration, error) {
	const scheduler = 2 // which of a process's clocks; see clock_getcpuclockid(3)
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^s.cmd.Process.Pid<<3|scheduler), &t); err != nil {
		return 0, fmt.Errorf("processor time of the server: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

// output runs a command to its end and returns what it printed.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	var errs strings.Builder
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &errs
	// What it started must end with it, and cannot keep us waiting by holding its output open.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, errs.String())
	}
	return out, nil
}

// conversation starts a script that measures something for each line that it is asked.
func (s settings) conversation(ctx context.Context, script string, args ...string) (ask func(line string) (reading, error), stop func(), err error) {
	cmd := exec.CommandContext(ctx, s.python, append([]string{s.script(script)}, args...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	lines := bufio.NewReader(out)
	ask = func(line string) (r reading, err error) {
		if _, err = fmt.Fprintln(in, line); err != nil {
			return r, err
		}
		answer, err := lines.ReadBytes('\n')
		if err != nil {
			return r, err
		}
		return r, json.Unmarshal(answer, &r)
	}
	return ask, func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, lines)
		_ = cmd.Wait()
	}, nil
}
