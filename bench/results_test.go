package main

import "testing"

func TestReplaceSection(t *testing.T) {
	text := replaceSection("# Results\n", "a", "first\n\n")
	text = replaceSection(text, "b", "other")
	text = replaceSection(text, "a", "second")
	want := "# Results\n\n<!-- a: begin -->\nsecond\n<!-- a: end -->\n\n<!-- b: begin -->\nother\n<!-- b: end -->\n"
	if text != want {
		t.Errorf("got\n%s", text)
	}
}

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 2}, 2}} {
		if got := median(test.values); got != test.want {
			t.Errorf("median %v = %v", test.values, got)
		}
	}
}
