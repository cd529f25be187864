package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// generate returns a folder of data, which a Python script makes unless it is there from an earlier run: line is given
// the folder to make. Half-made data are made anew.
func (s settings) generate(ctx context.Context, name string, line func(folder string) []string) (string, error) {
	dir := filepath.Join(s.data, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return "", err
	}
	if _, err := output(ctx, s.python, line(part)...); err != nil {
		return "", err
	}
	return dir, os.Rename(part, dir)
}

// versions is one line about what was measured, where and when.
func (s settings) versions(ctx context.Context) (string, error) {
	own, err := output(ctx, s.headrace, "version")
	if err != nil {
		return "", err
	}
	py, err := output(ctx, s.python, "-c", "import platform, pyarrow; print('Python', platform.python_version()+', pyarrow', pyarrow.__version__)")
	if err != nil {
		return "", err
	}
	lines := strings.FieldsFunc(string(own), func(r rune) bool { return r == '\n' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return fmt.Sprintf("%s; %s; %s, %d processors, %s, TCP %s, load at the end %s; %s.", strings.Join(lines, ", "), strings.TrimSpace(string(py)),
		cmp.Or(processor(), runtime.GOARCH), runtime.NumCPU(), told("Linux", "/proc/sys/kernel/osrelease"),
		told("by", "/proc/sys/net/ipv4/tcp_congestion_control"), told("", "/proc/loadavg"), time.Now().UTC().Format(time.DateOnly)), nil
}

// told is the first word of a file that Linux has.
func told(before, path string) string {
	text, _ := os.ReadFile(path)
	word, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	return strings.TrimSpace(before + " " + cmp.Or(word, "unknown"))
}

// processor is the model that Linux reports; "" elsewhere.
func processor() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	_, rest, _ := strings.Cut(string(info), "model name\t: ")
	model, _, _ := strings.Cut(rest, "\n")
	return model
}
