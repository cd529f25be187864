package wire

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestForecastsAreReadStrictly(t *testing.T) {
	f, err := ParseForecast([]byte(` {"policy": "lru", "request": {"dataset": "a/b", "batch_size": 5}, "limit": 9223372036854775807, "disk": 7} `))
	want := New("a/b")
	want.BatchSize = 5
	disk := int64(7)
	if err != nil || !reflect.DeepEqual(f, &ForecastRequest{Request: want, Limit: 1<<63 - 1, Policy: "lru", Disk: &disk}) {
		t.Errorf("%+v, %v", f, err)
	}
	for text, why := range map[string]string{
		``:                               "must be an object",
		`{}`:                             "request is missing",
		`{"request"}`:                    "a colon must follow",
		`{"request": {"dataset": "d"}}x`: "nothing may follow",
		`{"request": {"dataset": "d"}, "memory": 1}`: `unknown field "memory": there are request, limit, policy and disk`,
		`{"request": {}}`: "request: dataset is missing",
		`{"request": {"dataset": "d", "shufle": "full"}}`:     "request: ",
		`{"request": {"dataset": "d"}, "limit": -1}`:          "limit: ",
		`{"request": {"dataset": "d"}, "limit": 1.5}`:         "limit: ",
		`{"request": {"dataset": "d"}, "limit": 1e30}`:        "limit: ",
		`{"request": {"dataset": "d"}, "disk": -1}`:           "disk: ",
		`{"request": {"dataset": "d"}, "disk": "1GiB"}`:       "disk: ",
		`{"request": {"dataset": "d"}, "policy": null}`:       "policy: ",
		`{"request": {"dataset": "d"}, "request": {}}`:        "there twice",
		`{"request": {"dataset": "d"}, "Limit": 1}`:           "unknown field",
		`{"policy": "` + strings.Repeat("x", MaxRequest) + ``: "more than the",
	} {
		if _, err := ParseForecast([]byte(text)); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), why) {
			t.Errorf("%.80s: %v, want %s", text, err, why)
		}
	}
}

// FuzzForecast: what passes is JSON to the standard library too, and means the same once it is written again.
func FuzzForecast(f *testing.F) {
	for _, g := range goldenTickets(f) {
		f.Add([]byte(`{"request": ` + g.Request + `, "limit": 123, "policy": "p\u00e9"}`))
		f.Add([]byte(`{"disk": 0, "request": ` + g.Request + `}`))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseForecast(b)
		if err != nil {
			if !errors.Is(err, ErrRequest) || len(err.Error()) > 900 {
				t.Fatalf("%v", err)
			}
			return
		}
		if !json.Valid(b) {
			t.Fatalf("%q passed and is no JSON", b)
		}
		if again, err := ParseForecast(r.Marshal()); err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%q became %q: %v", b, r.Marshal(), err)
		}
	})
}
