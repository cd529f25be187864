package configs

import (
	"testing"
	"testing/fstest"
)

func TestDefaultMemory(t *testing.T) {
	const machine = "MemTotal:       16777216 kB\nMemFree: 1 kB\n" // 16 GiB
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"no limit", map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 4 << 30},
		{"no groups", map[string]string{"proc/meminfo": machine}, 4 << 30},
		{"container", map[string]string{"proc/meminfo": machine, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "4294967296\n"}, 2 << 30},
		{"outer group", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "0::/a.slice/b\n", "sys/fs/cgroup/a.slice/memory.max": "2147483648\n", "sys/fs/cgroup/a.slice/b/memory.max": "max\n",
		}, 1 << 30},
		{"version 1", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:hugetlb,memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "8589934592\n",
		}, 4 << 30},
		{"version 1 inside a container", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "4:memory:/docker/abc\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n",
		}, 512 << 20},
		{"version 1 without limit", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 4 << 30},
		{"no Linux", nil, 2 << 30},
		{"nonsense", map[string]string{"proc/meminfo": "MemTotal: lots kB", "proc/self/cgroup": "what\n::\n0::../..\n", "sys/fs/cgroup/memory.max": "-1"}, 2 << 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := fstest.MapFS{}
			for name, text := range c.files {
				root[name] = &fstest.MapFile{Data: []byte(text)}
			}
			if got := memoryOf(root); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}
