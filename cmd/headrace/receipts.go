package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"text/tabwriter"

	"github.com/headrace/headrace/gateway/client"
	"github.com/headrace/headrace/gateway/wire"
)

// receipt is a line of a file of receipts: a stream's account of an epoch, or of a part of one.
type receipt struct {
	Epoch, Rows, Padded int64
	Dropped             *int64
	Sum                 string
}

// account is what receipts of one epoch add up to.
type account struct {
	rows    int64
	dropped []int64 // as the receipts have it
	sum     big.Int
}

// modulus is that of sums.
var modulus = new(big.Int).Lsh(big.NewInt(1), 128)

// add books a receipt.
func (a *account) add(r receipt) error {
	sum, ok := new(big.Int).SetString(r.Sum, 16)
	if !ok || len(r.Sum) != 32 || sum.Sign() < 0 {
		return fmt.Errorf("sum %q: it must be 32 hex digits", r.Sum)
	}
	a.rows += r.Rows - r.Padded
	a.sum.Mod(sum.Add(sum, &a.sum), modulus)
	if r.Dropped != nil {
		a.dropped = append(a.dropped, *r.Dropped)
	}
	return nil
}

// verdict compares an account with what it must be.
func (a *account) verdict(want wire.EpochReceipt) string {
	for _, d := range a.dropped {
		if d != want.Dropped {
			return fmt.Sprintf("a receipt of another request: it has %s dropped", counted(d, "row"))
		}
	}
	switch sum := fmt.Sprintf("%032x", &a.sum); {
	case a.rows < want.Rows:
		return fmt.Sprintf("%s missing", count(want.Rows-a.rows))
	case a.rows > want.Rows:
		return fmt.Sprintf("%s too many", count(a.rows-want.Rows))
	case sum != want.Sum:
		return "as many, but not the same: some missing, some repeated"
	default:
		return "each once"
	}
}

var errReceipts = errors.New("the receipts do not add up to the plan")

// checkReceipts compares the receipts of all ranks with the plan's rows.
func checkReceipts(ctx context.Context, c *client.Client, w io.Writer, req *wire.Request, files []string) error {
	have, err := readReceipts(files)
	if err != nil {
		return err
	}
	answer, err := c.Action(ctx, "headrace.receipts", req.Canonical())
	if err != nil {
		return err
	}
	var epochs []wire.EpochReceipt
	if len(answer) != 1 || json.Unmarshal(answer[0], &epochs) != nil {
		return errors.New("headrace.receipts: the gateway's answer is of another kind")
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "EPOCH\tROWS\tDROPPED\tREAD\t")
	good := true
	for _, want := range epochs {
		a := have[want.Epoch]
		if a == nil {
			a = &account{}
		}
		delete(have, want.Epoch)
		verdict := a.verdict(want)
		good = good && verdict == "each once"
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\n", want.Epoch, count(want.Rows), count(want.Dropped), count(a.rows), verdict)
	}
	for epoch := range have {
		good = false
		fmt.Fprintf(t, "%d\t\t\t%s\tnot an epoch of this request\n", epoch, count(have[epoch].rows))
	}
	if err := t.Flush(); err != nil || good {
		return err
	}
	return errReceipts
}

// readReceipts adds up the receipts in files, by epoch.
func readReceipts(files []string) (map[int64]*account, error) {
	all := map[int64]*account{}
	for _, name := range files {
		if err := readFile(name, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func readFile(name string, all map[int64]*account) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("--receipts: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for number := 1; lines.Scan(); number++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var r receipt
		err := json.Unmarshal(lines.Bytes(), &r)
		if err == nil {
			if all[r.Epoch] == nil {
				all[r.Epoch] = &account{}
			}
			err = all[r.Epoch].add(r)
		}
		if err != nil {
			return fmt.Errorf("--receipts: %s, line %d: %w", name, number, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("--receipts: %s: %w", name, err)
	}
	return nil
}
