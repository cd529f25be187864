package main

import "testing"

func TestNumbersAreWrittenForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0 blocks", 1: "1 block", 2: "2 blocks", 1000: "1,000 blocks", 60_021: "60,021 blocks", 1_234_567: "1,234,567 blocks"} {
		if got := counted(n, "block"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 3 << 29: "1.5 GiB", 5 << 50: "5120.0 TiB"} {
		if got := size(n); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
