package configs

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// fallbackMemory is the default where the machine cannot be asked, in bytes.
const fallbackMemory = 2 << 30

// memoryOf is the default of the key memory, in bytes: half of the control group's limit if there is one below the
// machine's memory, else a quarter of the machine. The file system is the root of a Linux machine; others have no such files.
func memoryOf(root fs.FS) int64 {
	machine := machineMemory(root)
	if limit := groupLimit(root); limit < machine {
		return limit / 2
	}
	if machine == math.MaxInt64 {
		return fallbackMemory
	}
	return machine / 4
}

// machineMemory reads the MemTotal of /proc/meminfo; the largest number if it cannot.
func machineMemory(root fs.FS) int64 {
	text, _ := fs.ReadFile(root, "proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemTotal:" && f[2] == "kB" {
			if n, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				return n << 10
			}
		}
	}
	return math.MaxInt64
}

// groupLimit is the smallest limit of the process's control groups and of those around them, version 1 and 2; the
// largest number if there is none. Inside a container the own group is mounted at the top, so the top counts as well.
func groupLimit(root fs.FS) int64 {
	text, _ := fs.ReadFile(root, "proc/self/cgroup")
	least := int64(math.MaxInt64)
	for scanner := bufio.NewScanner(bytes.NewReader(text)); scanner.Scan(); {
		f := strings.SplitN(scanner.Text(), ":", 3) // number:controllers:/group
		if len(f) != 3 {
			continue
		}
		mount, file := "sys/fs/cgroup", "memory.max"
		switch {
		case f[1] == "":
		case strings.Contains(","+f[1]+",", ",memory,"):
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for group := path.Clean("/" + f[2]); ; group = path.Dir(group) {
			least = min(least, readLimit(root, path.Join(mount, group, file)))
			if group == "/" {
				break
			}
		}
	}
	return least
}

// readLimit reads one number; "max" and what cannot be read are no limit.
func readLimit(root fs.FS, file string) int64 {
	text, _ := fs.ReadFile(root, file)
	if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
		return n
	}
	return math.MaxInt64
}
