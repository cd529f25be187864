package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The examples of a page are one program, from top to bottom, but for those that begin with saying that they are programs of
// their own. They run as they are printed, but for the address.
func TestDocumentedExamplesRun(t *testing.T) {
	dir := t.TempDir()
	python(t, `
folder = Path(sys.argv[1]) / "imagenet" / "train"
folder.mkdir(parents=True)
for shard in range(2):
    ids = np.arange(1500) + 1500 * shard
    columns = {"id": ids, "image": [b"image" * 20] * 1500, "label": ids % 10, "meta": [{"label": int(i)} for i in ids]}
    pq.write_table(pa.table(columns), folder / f"{shard}.parquet", row_group_size=100)
`, dir)
	s := serve(t, dir)
	for _, page := range []string{"torch", "training", "wire"} {
		t.Run(page, func(t *testing.T) {
			work := t.TempDir() // a copy of what the examples read, where they may write
			for _, folder := range []string{"gateway/wire/testdata", "sampler/testdata"} {
				if err := os.CopyFS(filepath.Join(work, folder), os.DirFS(filepath.Join("..", folder))); err != nil {
					t.Fatal(err)
				}
			}
			text, err := os.ReadFile("../docs/" + page + ".md")
			if err != nil {
				t.Fatal(err)
			}
			script := []string{"token = 'any'", fmt.Sprintf("os.chdir(%q)", work)}
			for _, block := range strings.Split(string(text), "```python\n")[1:] {
				code, _, _ := strings.Cut(block, "```")
				code = strings.ReplaceAll(code, "grpc://127.0.0.1:8815", s.uri)
				if strings.HasPrefix(code, "# a program of its own\n") {
					python(t, code)
					continue
				}
				script = append(script, code)
			}
			python(t, strings.Join(script, "\n"))
		})
	}
}

// The security model's example of two teams does what its comments say.
func TestTwoTeamsOnOneGateway(t *testing.T) {
	dir := t.TempDir()
	python(t, `
for name, columns in {"imagenet/train": {"image": [b"x"], "label": [1]}, "users/eu": {"age": [30], "country": ["FR"], "email": ["a@b"]}}.items():
    folder = Path(sys.argv[1]) / "data" / name
    folder.mkdir(parents=True)
    pq.write_table(pa.table(columns), folder / "0.parquet")
`, dir)
	page, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "## Two teams on one gateway")
	blocks := strings.Split(example, "```sh\n")[1:4]
	for i := range blocks {
		blocks[i], _, _ = strings.Cut(blocks[i], "```")
	}
	shell := func(code string) (string, error) {
		cmd := exec.Command("bash", "-euc", code)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := shell(blocks[0]); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s := serveOn(t, "127.0.0.1:0", "--config", filepath.Join(dir, "headrace.yaml"))
	for i, line := range strings.Split(strings.TrimSpace(blocks[2]), "\n") {
		out, err := shell(strings.Replace(line, "--token", "--server "+s.uri+" --token", 1))
		has := [][]string{{"imagenet/train"}, {"age", "country"}, {"no such dataset"}}[i]
		lacks := []string{"users", "email", "label"}
		missing := func(word string) bool { return !strings.Contains(out, word) }
		if (err != nil) != (i == 2) || slices.ContainsFunc(has, missing) || !missing(lacks[i]) {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
}
