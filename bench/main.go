// Command bench measures headrace beside its alternatives: the same data, the same clients, one run, in turns.
//
//	bench [-only NAME] [-repeats N] [-write]
//
// It prints tables; -write also puts them into their sections of bench/RESULTS.md. Run it on a quiet machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
)

// settings are what every bench is given.
type settings struct {
	root     string // of the repository
	data     string // folder for generated data, kept between runs
	headrace string // the binary
	python   string // an interpreter with pyarrow
	repeats  int
	scale    float64 // of the data's size
}

// benches by name; each returns its table as Markdown.
var benches = map[string]func(context.Context, settings) (string, error){
	"cache":    caching,
	"checks":   checking,
	"datasets": datasets,
	"gather":   gathering,
	"mapped":   mapped,
	"memory":   limited,
	"order":    order,
	"parquet":  parquet,
	"plan":     planning,
	"shards":   shards,
	"start":    begin,
	"stores":   stores,
	"torch":    torchLoops,
	"wire":     streaming,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 2 && args[0] == stockCommand {
		return serveStock(ctx, args[1])
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("only", "", "run one bench")
	write := flags.Bool("write", false, "put the tables into bench/RESULTS.md")
	s := settings{}
	flags.IntVar(&s.repeats, "repeats", 9, "rounds; each round runs every alternative once")
	flags.Float64Var(&s.scale, "scale", 1, "size of the data, as a part of the full size")
	flags.StringVar(&s.headrace, "headrace", "", "the binary to measure (default: built from this tree)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	for _, name := range names(*only) {
		bench, ok := benches[name]
		if !ok {
			return fmt.Errorf("no bench %q", name)
		}
		table, err := bench(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Println(table)
		if *write {
			if err := record(filepath.Join(s.root, "bench", "RESULTS.md"), name, table); err != nil {
				return err
			}
		}
	}
	return nil
}

func names(only string) []string {
	if only != "" {
		return []string{only}
	}
	var all []string
	for name := range benches {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// prepare finds what the benches need and builds the binary.
func (s *settings) prepare(ctx context.Context) error {
	_, file, _, _ := runtime.Caller(0)
	s.root = filepath.Dir(filepath.Dir(file))
	if _, err := os.Stat(filepath.Join(s.root, "go.mod")); err != nil {
		return errors.New("run it from a source tree: go run ./bench")
	}
	s.data = filepath.Join(s.root, ".build", "bench")
	if err := os.MkdirAll(s.data, 0o755); err != nil {
		return err
	}
	// The client of this tree is measured, whichever the interpreter has.
	if err := os.Setenv("PYTHONPATH", filepath.Join(s.root, "python", "src")); err != nil {
		return err
	}
	if s.python = os.Getenv("HEADRACE_PYTHON"); s.python == "" {
		s.python = filepath.Join(s.root, ".venv", "bin", "python")
	}
	if s.headrace != "" {
		return nil
	}
	s.headrace = filepath.Join(s.data, "headrace")
	_, err := output(ctx, "go", "-C", s.root, "build", "-o", s.headrace, "./cmd/headrace")
	return err
}
