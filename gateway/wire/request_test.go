package wire

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const (
	hash32 = "aabbccddeeff00112233445566778899"
	hash64 = hash32 + hash32
)

func TestParseDefaults(t *testing.T) {
	r, err := Parse([]byte(`{"dataset": "imagenet/train", "snapshot": "", "columns": null, "split": null, "expect_schema": "",
		"row_id": false, "shuffle": "none", "window_blocks": 0, "groups": 1, "seed": 0, "epoch": 0, "num_epochs": 1,
		"batch_size": 0, "global_batch_size": 0, "world_size": 1, "rank": null, "num_workers": 1, "worker_id": null,
		"tail": "", "start": "", "after": "", "shards": null, "compression": "", "max_message_bytes": 0, "flight": ""}`))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(r, New("imagenet/train")) {
		t.Errorf("%+v is not all defaults", r)
	}
	if got := string(r.Canonical()); got != `{"dataset":"imagenet/train"}` {
		t.Error(got)
	}
	if err := r.Validate(); err != nil {
		t.Error(err)
	}
}

// Every refusal is ErrRequest, is short, and its text leads to the mistake.
func TestParseRefuses(t *testing.T) {
	with := func(member string) string { return `{"dataset":"d",` + member + `}` }
	deep := strings.Repeat("[", 20_000)
	for _, c := range []struct{ name, text, want string }{
		{"empty", ``, "must be an object, not the end"},
		{"white space", " \n", "must be an object, not the end"},
		{"array", `[]`, "must be an object, not an array"},
		{"null", `null`, "not null"},
		{"open", `{"dataset":"d"`, "comma or }"},
		{"trailing comma", `{"dataset":"d",}`, "a string"},
		{"trailing data", `{"dataset":"d"} {}`, "nothing may follow"},
		{"trailing NUL", "{\"dataset\":\"d\"}\x00", "nothing may follow"},
		{"byte order mark", "\ufeff{\"dataset\":\"d\"}", "must be an object"},
		{"comment", `{"dataset":"d"/**/}`, "comma or }"},
		{"no colon", `{"dataset" "d"}`, "a colon"},
		{"no dataset", `{}`, "dataset is missing"},
		{"empty dataset", `{"dataset":""}`, "dataset is missing"},
		{"null dataset", `{"dataset":null}`, "dataset: must be a string, not null"},
		{"duplicate", with(`"dataset":"e"`), `field "dataset" is there twice`},
		{"duplicate by escape", with(`"datas\u0065t":"e"`), `field "dataset" is there twice`},
		{"duplicate nested", with(`"split":{"seed":1,"from":0,"to":9,"seed":2}`), `split: field "seed" is there twice`},
		{"case-folded", `{"Dataset":"d"}`, `did you mean "dataset"?`},
		{"case-folded nested", with(`"split":{"Seed":1,"from":0,"to":9}`), `split: unknown field "Seed"`},
		{"folded by Unicode", `{"data\u017fet":"d"}`, `did you mean "dataset"?`},
		{"bad UTF-8 value", "{\"dataset\":\"d\xff\"}", "not UTF-8"},
		{"bad UTF-8 key", "{\"d\xff\":\"d\"}", "not UTF-8"},
		{"overlong UTF-8", "{\"dataset\":\"d\xc0\xaf\"}", "not UTF-8"},
		{"half a pair", with(`"columns":["\ud800"]`), "columns: a string holds a bad escape"},
		{"half a pair and a letter", with(`"columns":["\ud800\u0041"]`), "bad escape"},
		{"second half", with(`"columns":["\udc00"]`), "bad escape"},
		{"bad escape", with(`"columns":["\x41"]`), "bad escape"},
		{"short escape", with(`"columns":["\u00`), "bad escape"},
		{"signed escape", with(`"columns":["\u+041"]`), "bad escape"},
		{"end in escape", `{"dataset":"d","columns":["\`, "does not end"},
		{"escaped NUL", with(`"columns":["a\u0000"]`), "NUL"},
		{"bare NUL", with("\"columns\":[\"a\x00\"]"), "control character"},
		{"bare newline", with("\"columns\":[\"a\n\"]"), "control character"},
		{"single quotes", `{'dataset':'d'}`, "must be a string"},

		{"string for number", with(`"batch_size":"8"`), "batch_size: must be an integer, not a string"},
		{"float", with(`"batch_size":8.0`), `batch_size: must be an integer in plain digits, not "8.0"`},
		{"exponent", with(`"batch_size":1e3`), "plain digits"},
		{"leading zero", with(`"batch_size":08`), "plain digits"},
		{"minus zero", with(`"batch_size":-0`), "plain digits"},
		{"only minus", with(`"batch_size":-`), "plain digits"},
		{"NaN", with(`"batch_size":NaN`), "must be an integer, not 'N'"},
		{"negative", with(`"batch_size":-1`), "batch_size: must lie in 0 to 2147483647, not"},
		{"world of a billion", with(`"world_size":1000000000`), `world_size: must lie in 1 to 65536, not "1000000000"`},
		{"world of none", with(`"world_size":0`), "world_size: must lie in 1 to 65536"},
		{"past 64 bits", with(`"batch_size":99999999999999999999`), "must lie in"},
		{"long number", with(`"batch_size":1` + strings.Repeat("0", 1000)), "must lie in"},
		{"seed past 64 bits", with(`"seed":18446744073709551616`), "seed: must lie in 0 to 18446744073709551615"},
		{"negative seed", with(`"seed":-1`), "seed: must lie in"},
		{"rank too large", with(`"rank":65536`), "rank: must lie in"},
		{"epochs", with(`"num_epochs":-2`), "num_epochs: must lie in"},
		{"message size", with(`"max_message_bytes":67108865`), "max_message_bytes: must lie in"},
		{"number for bool", with(`"row_id":1`), "row_id: must be true or false, not a number"},
		{"null for number", with(`"world_size":null`), "world_size: must be an integer, not null"},
		{"capital true", with(`"row_id":True`), "row_id: must be true or false, not 'T'"},
		{"glued words", with(`"row_id":truefalse`), "comma or }"},

		{"shuffle", with(`"shuffle":"random"`), `shuffle: must be one of ["none" "window" "full"], not "random"`},
		{"shuffle true", with(`"shuffle":true`), "shuffle: must be a string, not true or false"},
		{"tail", with(`"tail":"wrap"`), "tail: must be one of"},
		{"compression", with(`"compression":"gzip"`), `compression: must be one of ["" "lz4" "zstd"]`},
		{"snapshot", with(`"snapshot":"-latest"`), "snapshot: must be 64 lower-case hex digits"},
		{"snapshot upper case", with(`"snapshot":"` + strings.ToUpper(hash64) + `"`), "snapshot: must be 64"},
		{"expect_schema", with(`"expect_schema":"00"`), "expect_schema: must be 64"},
		{"flight", with(`"flight":"x"`), "flight: must be 32"},
		{"cursor", with(`"after":"hr1:x"`), "after: must be hr1:<32 hex digits>:<epoch>:<rows>"},

		{"columns string", with(`"columns":"id"`), "columns: must be null or an array of names, not a string"},
		{"columns of numbers", with(`"columns":[1]`), "columns: must be a name or an array of names, not a number"},
		{"empty column", with(`"columns":[""]`), "columns: a name may not be empty"},
		{"empty path", with(`"columns":[[]]`), "columns: a path needs a name"},
		{"empty name in path", with(`"columns":[["a",""]]`), "columns: a name may not be empty"},
		{"deep path", with(`"columns":[[["a"]]]`), "columns: must be a string, not an array"},
		{"deep nesting", with(`"columns":` + deep), "columns: must be a string, not an array"},
		{"deep objects", with(`"x":` + strings.Repeat(`{"a":`, 9_000)), `unknown field "x"`},
		{"long path", with(`"columns":[["a"` + strings.Repeat(`,"a"`, maxDepth) + `]]`), "a path of more than 64 names"},
		{"too many columns", with(`"columns":["a"` + strings.Repeat(`,"a"`, maxColumns) + `]`), "more than 4096 columns"},
		{"split incomplete", with(`"split":{"from":0,"to":1}`), "split: a split needs seed, from and to"},
		{"split out of range", with(`"split":{"seed":0,"from":0,"to":10001}`), "split: must lie in 0 to 10000"},
		{"split array", with(`"split":[0,1]`), "split: must be an object"},
		{"no shards", with(`"shards":[]`), "shards: an empty list"},
		{"shard twice", with(`"shards":["a","a"]`), `shards: shard "a" is there twice`},
		{"empty shard", with(`"shards":[""]`), "shards: a name may not be empty"},
		{"shard numbers", with(`"shards":[0]`), "shards: must be a string"},
		{"shards null-like", with(`"shards":nil`), "shards: must be null, an array of keys"},
		{"range backwards", with(`"shards":"2:1"`), "shards: must be null, an array of keys"},
		{"range open", with(`"shards":"2:"`), "shards: must be"},
		{"range signed", with(`"shards":"+1:2"`), "shards: must be"},
		{"range padded", with(`"shards":"01:2"`), "shards: must be"},
		{"range of three", with(`"shards":"1:2:3"`), "shards: must be"},
		{"range too far", with(`"shards":"0:2147483648"`), "shards: must be"},
		{"too long", with(`"columns":["` + strings.Repeat("a", MaxRequest) + `"]`), "more than the 65536"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse([]byte(c.text))
			if !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want one with %q", err, c.want)
			}
			// A place in the text helps where the text is what is wrong.
			if wrong := (*FieldError)(nil); errors.As(err, &wrong) && strings.Contains(err.Error(), "at byte") != (wrong.Field == "") {
				t.Errorf("field %q: %v", wrong.Field, err)
			}
			if err != nil && len(err.Error()) > 700 {
				t.Errorf("%d bytes of text", len(err.Error()))
			}
		})
	}
}

func TestParseTakesTheLargest(t *testing.T) {
	pad := MaxRequest - len(`{"dataset":"d"}`)
	if _, err := Parse([]byte(`{"dataset":"d"` + strings.Repeat(" ", pad) + `}`)); err != nil {
		t.Error(err)
	}
	if _, err := Parse([]byte(`{"dataset":"d"` + strings.Repeat(" ", pad+1) + `}`)); !errors.Is(err, ErrRequest) {
		t.Error(err)
	}
	wide := `{"dataset":"d","columns":["a"` + strings.Repeat(`,"a"`, maxColumns-1) + `]}`
	if r, err := Parse([]byte(wide)); err != nil || len(r.Columns) != maxColumns {
		t.Error(err)
	}
}

// No columns is a request for the row count alone; it must not turn into all columns.
func TestB26_NoColumnsIsNotAllColumns(t *testing.T) {
	r, err := Parse([]byte(`{"dataset":"d","columns":[]}`))
	if err != nil || r.Columns == nil || len(r.Columns) != 0 {
		t.Fatal(r, err)
	}
	if got := string(r.Canonical()); got != `{"dataset":"d","columns":[]}` {
		t.Error(got)
	}
}

func TestPathOfOneIsAName(t *testing.T) {
	r, err := Parse([]byte(`{"dataset":"d","columns":[["a"],["b","c"]]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(r.Canonical()); got != `{"dataset":"d","columns":["a",["b","c"]]}` {
		t.Error(got)
	}
}

func TestUnknownFieldsAreAnswered(t *testing.T) {
	for word, want := range map[string]string{
		"num_replicas": `here it is called "world_size"`, "nranks": `here it is called "world_size"`,
		"world": `here it is called "world_size"`, "shuffle_seed": `here it is called "seed"`,
		"batchsize": `here it is called "batch_size"`, "columns_to_read": `here it is called "columns"`,
		"num_canonical_nodes": `here it is called "groups"`, "BatchSize": `here it is called "batch_size"`,
		"datset": `did you mean "dataset"?`, "clumns": `did you mean "columns"?`, "RANK": `did you mean "rank"?`,
		"batch-size": `did you mean "batch_size"?`, "zzzzzzzz": "fields are dataset, snapshot, columns",
		strings.Repeat("é", 300): "fields are dataset",
	} {
		_, err := Parse([]byte(fmt.Sprintf(`{"dataset":"d",%q:1}`, word)))
		if !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", word, err, want)
		}
	}
	for word, ours := range rivals {
		if !strings.Contains(unknown(word), ours) || Suggest(ours, []string{ours}) == "" {
			t.Errorf("%s is not answered with %s", word, ours)
		}
	}
}

func TestRivalsAreNotFields(t *testing.T) {
	known := make(map[string]bool)
	for _, f := range fields {
		known[f.name] = true
	}
	for word, ours := range rivals {
		if known[word] || !known[ours] {
			t.Errorf("%s -> %s", word, ours)
		}
	}
}

func TestSuggest(t *testing.T) {
	known := []string{"listen", "memory", "tls"}
	for word, want := range map[string]string{
		"lisen": "listen", "memroy": "memory", "Memory": "memory", "tsl": "tls", "banana": "", "": "",
		strings.Repeat("x", 100): "",
	} {
		if got := Suggest(word, known); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	cursor := func(epoch, rows int64) string { return Cursor{hash32, epoch, rows}.String() }
	for _, c := range []struct{ member, want string }{
		{`"seed":1`, "seed does nothing without a shuffle: ask for one, or leave seed out"},
		{`"groups":2`, "groups does nothing without a shuffle: ask for one, or leave groups out"},
		{`"window_blocks":8`, "window_blocks does nothing without shuffle \"window\": ask for that"},
		{`"shuffle":"full","batch_size":1,"window_blocks":8`, "window_blocks does nothing"},
		{`"shuffle":"window"`, "a shuffle needs batch_size"},
		{`"world_size":2`, "world_size above 1 needs batch_size"},
		{`"tail":"drop"`, "tail needs batch_size"},
		{`"batch_size":3,"world_size":2,"global_batch_size":7`, "is not global_batch_size 7"},
		{`"batch_size":2147483647,"world_size":65536,"global_batch_size":1`, "is not global_batch_size 1"},
		{`"max_message_bytes":1023`, "max_message_bytes 1023 is less than 1024"},
		{`"rank":1`, "rank 1 is not less than world_size 1"},
		{`"num_workers":2`, "num_workers above 1 needs worker_id"},
		{`"num_workers":2,"worker_id":2`, "worker_id 2 is not less than num_workers 2"},
		{`"split":{"seed":1,"from":5,"to":5}`, "from must be less than to"},
		{`"num_epochs":0`, "num_epochs must be at least 1"},
		{`"epoch":2147483646,"num_epochs":2147483647`, "epoch plus num_epochs"},
		{`"after":"` + cursor(2, 0) + `"`, "after lies in epoch 2"},
		{`"after":"` + cursor(1, 1) + `"`, "after lies in epoch 1"},
		{`"epoch":3,"num_epochs":-1,"start":"` + cursor(2, 0) + `"`, "start lies in epoch 2"},
		{`"start":"` + cursor(0, 9) + `","after":"` + cursor(0, 8) + `"`, "after lies before start"},
		{`"start":"` + cursor(0, 9) + `","after":"` + Cursor{strings.Repeat("0", 32), 0, 9}.String() + `"`, "different plans"},
	} {
		r, err := Parse([]byte(`{"dataset":"d",` + c.member + `}`))
		if err != nil {
			t.Errorf("%s: %v", c.member, err)
			continue
		}
		if err := r.Validate(); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.member, err, c.want)
		}
	}
}

// Sound requests with each of the fields that are not the default.
func TestEveryFieldMayBeSet(t *testing.T) {
	for _, member := range []string{
		`"split":{"seed":1,"from":0,"to":9000}`, `"shuffle":"window","batch_size":8,"seed":7,"groups":2,"window_blocks":9`,
		`"shuffle":"full","batch_size":8`, `"epoch":1`, `"num_epochs":-1`, `"global_batch_size":8`, `"world_size":2,"batch_size":8`,
		`"rank":0`, `"num_workers":2,"worker_id":0`, `"tail":"pad","batch_size":8`,
		`"start":"` + Cursor{hash32, 0, 0}.String() + `","snapshot":"` + hash64 + `"`,
		`"snapshot":"` + hash64 + `"`, `"columns":["a"]`, `"shards":["k"]`, `"shards":"0:0"`, `"batch_size":8`,
		`"max_message_bytes":1024`, `"compression":"lz4"`, `"expect_schema":"` + hash64 + `"`, `"row_id":true`,
		`"after":"` + Cursor{hash32, 0, 9}.String() + `"`, `"after":"` + Cursor{hash32, 1, 0}.String() + `"`,
	} {
		r, err := Parse([]byte(`{"dataset":"d",` + member + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Validate(); err != nil {
			t.Errorf("%s: %v", member, err)
		}
	}
}

// A canonical text is a fixed point, and a request says the same before and after a trip through its ticket.
func TestCanonicalIsAFixedPoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRequest(t)
		text := r.Canonical()
		again, err := parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !reflect.DeepEqual(r, again) || string(again.Canonical()) != string(text) {
			t.Fatalf("%s became %s", text, again.Canonical())
		}
		r.Snapshot, r.Flight = hash64, hash32
		back, err := ParseTicket(r.Ticket())
		if err != nil || !reflect.DeepEqual(r, back) {
			t.Fatalf("%s became %+v, %v", r.Ticket(), back, err)
		}
	})
}

func drawRequest(t *rapid.T) *Request {
	name := rapid.StringMatching(`[^\x00]{1,8}`).Filter(func(s string) bool { return len(s) > 0 })
	places := func(label string) *Cursor {
		if !rapid.Bool().Draw(t, label) {
			return nil
		}
		return &Cursor{hash32, rapid.Int64Range(0, MaxEpoch).Draw(t, label), rapid.Int64Range(0, 1<<62).Draw(t, label)}
	}
	number := func(label string) *int64 {
		if !rapid.Bool().Draw(t, label) {
			return nil
		}
		n := rapid.Int64Range(0, maxWorld-1).Draw(t, label)
		return &n
	}
	r := New("team/set")
	r.Columns = rapid.SliceOfN(rapid.SliceOfN(name, 1, 3), 0, 4).Draw(t, "columns")
	r.RowID = rapid.Bool().Draw(t, "row_id")
	r.Shuffle = rapid.SampledFrom([]string{"none", "window", "full"}).Draw(t, "shuffle")
	r.Seed = rapid.Uint64().Draw(t, "seed")
	r.NumEpochs = rapid.Int64Range(-1, MaxEpoch).Draw(t, "num_epochs")
	r.BatchSize = rapid.Int64Range(0, maxCount).Draw(t, "batch_size")
	r.WorldSize = rapid.Int64Range(1, maxWorld).Draw(t, "world_size")
	r.Rank, r.WorkerID = number("rank"), number("worker_id")
	r.Start, r.After = places("start"), places("after")
	r.Compression = rapid.SampledFrom([]string{"", "lz4", "zstd"}).Draw(t, "compression")
	switch rapid.IntRange(0, 2).Draw(t, "shards") {
	case 1:
		r.Shards = &Shards{Keys: rapid.SliceOfNDistinct(name, 1, 4, rapid.ID).Draw(t, "keys")}
	case 2:
		from := rapid.Int64Range(0, maxCount).Draw(t, "from")
		r.Shards = &Shards{From: from, To: rapid.Int64Range(from, maxCount).Draw(t, "to")}
	}
	if rapid.Bool().Draw(t, "split") {
		r.Split = &Split{Seed: rapid.Uint64().Draw(t, "split seed"), From: 1, To: 10_000}
	}
	return r
}
