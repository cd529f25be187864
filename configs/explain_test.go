package configs

import (
	"bytes"
	"strings"
	"testing"
)

func TestExplain(t *testing.T) {
	var b bytes.Buffer
	if err := Explain(&b); err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if !strings.Contains(b.String(), k.name+"  ("+string(k.kind)) {
			t.Errorf("%s is not explained", k.name)
		}
	}
	for line := range strings.Lines(b.String()) {
		if len(line) > 120 {
			t.Errorf("long line: %s", line)
		}
	}
	if !strings.Contains(b.String(), "listen  (address, default 127.0.0.1:8815)\n    Where clients connect") {
		t.Error(b.String())
	}
}
