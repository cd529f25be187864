package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/auth"
)

//go:embed demo.py
var demoScript string

// What the demo's tokens say.
const (
	demoIssuer   = "https://demo.headrace.invalid"
	demoAudience = "headrace-demo"
)

func demoCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Make a small data set, serve it, read it, crash in mid-stream and go on",
		Long: "Make a small data set, serve it, read it, crash in mid-stream and go on. Takes about ten seconds.\n\n" +
			"Needs a Python with numpy, pyarrow and the headrace package: python3, or the one named by HEADRACE_PYTHON.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			d := &demo{ctx: cmd.Context(), out: cmd.OutOrStdout(), dir: dir, python: cmp.Or(os.Getenv("HEADRACE_PYTHON"), "python3")}
			if d.work, err = os.MkdirTemp("", "headrace-demo-"); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, os.RemoveAll(d.work)) }()
			return d.run()
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "headrace-demo", "where the data go, and stay")
	return cmd
}

// demo is one run of it.
type demo struct {
	ctx     context.Context
	out     io.Writer
	python  string
	dir     string // data
	work    string // keys
	gateway *exec.Cmd
	uri     string
}

func (d *demo) run() error {
	if err := vacant(d.dir); err != nil {
		return err
	}
	key := filepath.Join(d.work, "key")
	if err := os.WriteFile(key, []byte(rand.Text()+rand.Text()), 0o600); err != nil {
		return err
	}
	vision, err1 := demoToken(key, "vision")
	speech, err2 := demoToken(key, "speech")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	d.step("Two tenants' data, in " + d.dir)
	if err := d.script("make", d.dir); err != nil {
		return err
	}
	d.step("A gateway that asks for tokens")
	if err := d.start(key, "127.0.0.1:0"); err != nil {
		return err
	}
	defer d.kill()
	fmt.Fprintf(d.out, "   %s\n", d.uri)
	d.step("Each tenant reads its own, with stock pyarrow")
	if err := errors.Join(d.script("read", d.uri, "vision/photos", vision), d.script("read", d.uri, "speech/clips", speech)); err != nil {
		return err
	}
	d.step("One asks for the other's")
	if err := d.script("refused", d.uri, "speech/clips", vision); err != nil {
		return err
	}
	d.step("The gateway is killed in mid-stream")
	if err := d.crash(key, speech); err != nil {
		return err
	}
	if err := d.epoch(key, vision); err != nil {
		return err
	}
	d.step("Yours: the data stay, so these work at once, each in a terminal of its own")
	d.farewell()
	return nil
}

// vacant tells whether a folder may be filled: it is not there yet, or has nothing in it but what an earlier demo left.
func vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if name := e.Name(); name != "vision" && name != "speech" {
			return usagef("--dir %s: it has other things in it (%s): name a new folder", dir, name)
		}
	}
	return err
}

func (d *demo) step(title string) { fmt.Fprintf(d.out, "\n▸ %s\n", title) }

func (d *demo) farewell() {
	self := os.Args[0]
	fmt.Fprintf(d.out, "   %s serve %s\n   %s peek %s\n\n", self, d.dir, self, photos)
	fmt.Fprintf(d.out, "   or, in %s and without our package:\n\n%s\n", d.python, snippet(defaultServer, photos, ""))
	fmt.Fprintf(d.out, "   and when you are done: rm -r %s\n", d.dir)
}

func demoToken(key, tenant string) (string, error) {
	return auth.Mint(auth.Minting{
		KeyFile: key, Algorithm: "HS256", Issuer: demoIssuer, Audience: demoAudience, Subject: "demo",
		Tenant: tenant, Grants: []string{tenant + "/**"}, TTL: 10 * time.Minute,
	})
}

// start runs this program as a gateway of its own, so that it can be killed like one.
func (d *demo) start(key, address string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	d.gateway = exec.CommandContext(d.ctx, self, "serve", d.dir, "--listen", address, "--admin", "127.0.0.1:0",
		"--auth", "jwt", "--key", key, "--algorithm", "HS256", "--issuer", demoIssuer, "--audience", demoAudience)
	var log bytes.Buffer
	d.gateway.Stderr = &log
	out, err := d.gateway.StdoutPipe()
	if err != nil {
		return err
	}
	if err := d.gateway.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	uri, ok := strings.CutPrefix(strings.TrimSpace(line), "listening ")
	if err != nil || !ok {
		d.kill()
		return fmt.Errorf("the gateway did not start: %s", log.String())
	}
	d.uri = uri
	return nil
}

// kill ends the gateway as a crash would: without a word.
func (d *demo) kill() {
	_ = d.gateway.Process.Kill()
	_ = d.gateway.Wait()
}

// script runs a step of the Python part and shows what it says.
func (d *demo) script(args ...string) error {
	cmd := d.command(args...)
	var out, problems bytes.Buffer
	cmd.Stderr = io.MultiWriter(os.Stderr, &problems)
	cmd.Stdout = &out
	err := cmd.Run()
	d.show(out.String())
	if errors.As(err, new(*exec.ExitError)) && !strings.Contains(problems.String(), "ModuleNotFoundError") {
		return fmt.Errorf("the demo's Python part: %w", err) // it has said why
	}
	return d.explain(err)
}

func (d *demo) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(d.ctx, d.python, append([]string{"-c", demoScript}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd
}

func (d *demo) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the demo's Python part: %w\nit needs numpy, pyarrow and headrace: %s -m pip install numpy ./python", err, d.python)
}

func (d *demo) show(text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(d.out, "   %s", line)
	}
}

// crash kills the gateway when the reader says so, and starts another one on the same port.
func (d *demo) crash(key, token string) error {
	cmd := d.command("crash", d.uri, "speech/clips", token)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return d.explain(err)
	}
	lines := bufio.NewReader(pipe)
	if line, err := lines.ReadString('\n'); err == nil && line == "now\n" {
		d.kill()
		fmt.Fprintln(d.out, "   killed (SIGKILL) and started anew; the client goes on by itself")
		if err := d.start(key, strings.TrimPrefix(d.uri, "grpc://")); err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return err
		}
	}
	rest, _ := io.ReadAll(lines)
	d.show(string(rest))
	return d.explain(cmd.Wait())
}
