package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	photos     = "vision/photos"
	demoRanks  = 4
	demoVictim = demoRanks - 1 // who is killed
	demoSteps  = 50            // before that
)

// shuffled is what all ranks ask for.
var shuffled = map[string]any{"shuffle": "window", "seed": 7, "window_blocks": 4, "global_batch_size": 512, "tail": "keep"}

// job is ranks in lock step, as training is: nobody takes a step before all have taken the one before.
type job struct {
	*demo
	token string
	ranks []*rank

	// what a checkpoint holds: of the steps that all ranks have taken, and nothing of the one that they are in
	rows     []int64 // their numbers, in the order of the epoch
	cursor   string
	snapshot string
}

// rank is a process that reads its share.
type rank struct {
	cmd     *exec.Cmd
	in      io.Writer
	out     *json.Decoder
	receipt string // of the steps that all ranks have taken
}

// taken is what a rank says of a step.
type taken struct {
	Rows     []int64         `json:"rows"` // their numbers
	Cursor   string          `json:"cursor"`
	Snapshot string          `json:"snapshot"`
	Receipt  json.RawMessage `json:"receipt"`
	End      bool            `json:"end"` // there was no step
}

// epoch shows that a shuffled epoch comes through a crash of the gateway and of a rank.
func (d *demo) epoch(key, token string) error {
	d.step("A shuffled epoch of " + photos + ", by one process and undisturbed: what has to come")
	alone := &job{demo: d, token: token}
	defer alone.end()
	steps, err := alone.run(1, 1<<30)
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "   %s in %s of %v\n", counted(len(alone.rows), "row"), counted(steps, "step"), shuffled["global_batch_size"])

	d.step(fmt.Sprintf("The same epoch by %d ranks in lock step, and a crash", demoRanks))
	team := &job{demo: d, token: token, snapshot: alone.snapshot}
	defer team.end()
	if _, err := team.run(demoRanks, demoSteps); err != nil {
		return err
	}
	receipts := team.receipts()
	if err := team.crash(key); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "   a new gateway, with nothing in memory; the %d ranks that are left go on at %s\n", demoVictim, team.cursor)
	if steps, err = team.run(demoVictim, 1<<30); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "   %s later the epoch ends\n", counted(steps, "step"))
	if err := team.compare(alone.rows); err != nil {
		return err
	}
	return team.check(append(receipts, team.receipts()...))
}

// run takes steps from the checkpoint on with so many ranks, at most so many, and tells how many there were. If there
// are more, the next one is asked for.
func (j *job) run(ranks, most int) (int, error) {
	err := j.grow(ranks)
	if err == nil {
		err = j.begin()
	}
	for n := range most {
		if err != nil {
			return n, err
		}
		all := make([]taken, ranks)
		for i, r := range j.ranks {
			if all[i], err = r.take(); err != nil {
				return n, fmt.Errorf("rank %d: %w", i, err)
			}
			if all[i].End != all[0].End {
				return n, fmt.Errorf("rank %d takes another number of steps than rank 0", i)
			}
		}
		if all[0].End {
			return n, nil
		}
		j.commit(all)
		err = j.next()
	}
	return most, err
}

// grow starts ranks, until there are so many.
func (j *job) grow(n int) error {
	for len(j.ranks) < n {
		r := &rank{cmd: j.command("rank", j.uri, photos, j.token)}
		in, err1 := r.cmd.StdinPipe()
		out, err2 := r.cmd.StdoutPipe()
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if err := r.cmd.Start(); err != nil {
			return j.explain(err)
		}
		r.in, r.out = in, json.NewDecoder(bufio.NewReader(out))
		j.ranks = append(j.ranks, r)
	}
	return nil
}

// end ends all ranks.
func (j *job) end() {
	for _, r := range j.ranks {
		r.kill()
	}
}

func (r *rank) kill() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}

// begin makes every rank open a stream at the checkpoint, and asks it for the first step.
func (j *job) begin() error {
	for number, r := range j.ranks {
		request := maps.Clone(shuffled)
		request["snapshot"], request["start"] = j.snapshot, j.cursor
		request["world_size"], request["rank"], request["row_id"] = len(j.ranks), number, true
		line, err := json.Marshal(request)
		if err == nil {
			_, err = fmt.Fprintf(r.in, "%s\n", line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// next asks every rank for another step.
func (j *job) next() error {
	for _, r := range j.ranks {
		if _, err := fmt.Fprintln(r.in); err != nil {
			return err
		}
	}
	return nil
}

func (r *rank) take() (t taken, err error) {
	err = r.out.Decode(&t)
	if errors.Is(err, io.EOF) {
		err = errors.New("it ended")
	}
	return t, err
}

// commit is the checkpoint behind a step.
func (j *job) commit(all []taken) {
	for i, t := range all {
		j.rows = append(j.rows, t.Rows...)
		j.cursor, j.snapshot = t.Cursor, t.Snapshot
		j.ranks[i].receipt = string(t.Receipt)
	}
}

func (j *job) receipts() (all []string) {
	for _, r := range j.ranks {
		all = append(all, r.receipt)
	}
	return all
}

// crash kills a rank and the gateway while a step is under way, and starts another gateway.
func (j *job) crash(key string) error {
	if _, err := j.ranks[0].take(); err != nil { // one has its share already
		return err
	}
	j.ranks[demoVictim].kill()
	j.kill()
	fmt.Fprintf(j.out, "   %d steps are done; in the next one rank %d and the gateway are killed (SIGKILL)\n", demoSteps, demoVictim)
	fmt.Fprintln(j.out, "   what other ranks got of that step counts for nothing: no checkpoint has it")
	if err := j.start(key, strings.TrimPrefix(j.uri, "grpc://")); err != nil {
		return err
	}
	j.ranks = j.ranks[:demoVictim]
	for _, r := range j.ranks[1:] { // their streams went on by themselves
		if _, err := r.take(); err != nil {
			return err
		}
	}
	return nil
}

// compare looks for rows that are missing, repeated or out of order.
func (j *job) compare(want []int64) error {
	seen := map[int64]int{}
	for _, row := range j.rows {
		seen[row]++
	}
	missing, repeated := 0, len(j.rows)-len(seen)
	for _, row := range want {
		if seen[row] == 0 {
			missing++
		}
	}
	order := "equal to"
	if !slices.Equal(j.rows, want) {
		order = "NOT"
	}
	fmt.Fprintf(j.out, "   %s: missing %d, repeated %d, order %s the undisturbed run's\n", counted(len(j.rows), "row"), missing, repeated, order)
	if order == "NOT" {
		return errors.New("the epoch is not the same")
	}
	return nil
}

// check lets this program prove the receipts, as anybody can who was not there.
func (j *job) check(receipts []string) error {
	file := filepath.Join(j.work, "receipts")
	if err := os.WriteFile(file, []byte(strings.Join(receipts, "\n")), 0o600); err != nil {
		return err
	}
	request := maps.Clone(shuffled)
	request["dataset"], request["world_size"], request["snapshot"] = photos, demoRanks, j.snapshot
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	fmt.Fprintf(j.out, "   the receipts of all %d streams (headrace plan --receipts):\n", len(receipts))
	cmd := exec.CommandContext(j.ctx, self, "plan", "--server", j.uri, "--token", j.token, "--request", string(text), "--receipts", file)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	j.show(string(out))
	return err
}
