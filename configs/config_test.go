package configs

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// minimal is the least that a file must say.
const minimal = "auth: {mode: none}\n"

func write(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "headrace.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// load reads a file and returns the problems without the name of its folder.
func load(t testing.TB, text string, environ ...string) (*Config, []string) {
	t.Helper()
	path := write(t, text)
	c, err := Load(Source{File: path, Environ: environ})
	if err == nil {
		return c, nil
	}
	var invalid *InvalidError
	if !errors.As(err, &invalid) || len(invalid.Problems) == 0 || c != nil {
		t.Fatalf("error %v", err)
	}
	for i, p := range invalid.Problems {
		invalid.Problems[i] = strings.ReplaceAll(p, filepath.Dir(path)+"/", "")
	}
	return nil, invalid.Problems
}

func TestSample(t *testing.T) {
	c, problems := load(t, sample(t))
	if problems != nil {
		t.Fatal(problems)
	}
	folder := filepath.Dir(filepath.Dir(c.Auth.Keys[0].File))
	want := &Config{
		Listen: "127.0.0.1:8815", Admin: "127.0.0.1:9464", SharedMemory: "auto", Memory: 8 << 30,
		Auth: Auth{
			Mode: "jwt", Issuer: "https://id.example.com", Audience: "headrace", TenantClaim: "tenant", GrantsClaim: "headrace",
			Keys: []Key{
				{Algorithm: "EdDSA", File: filepath.Join(folder, "keys/id.pem")},
				{Algorithm: "RS256", File: filepath.Join(folder, "keys/old.pem"), KeyID: "2025"},
			},
			Skew: 30 * time.Second,
		},
		Datasets: []Dataset{
			{Name: "imagenet/train", URL: "/data/imagenet/train", Schema: "strict"},
			{Name: "clicks", URL: "file:///data/clicks", Schema: "strict", Files: []string{"**/*.parquet"}, Exclude: []string{"tmp/**"}, Partitioning: "hive"},
		},
		Refresh:   30 * time.Second,
		Snapshots: Snapshots{Dir: "/var/cache/headrace", URL: "s3://data/headrace", Keep: 2160 * time.Hour},
		Cache:     Cache{Policy: "auto", DiskLimit: 500 << 30, Decoders: Decoders{GrowAt: 128, ShrinkBelow: .3}},
		Tenants:   []Tenant{{Name: "vision", Memory: .5}},
		Limits:    Limits{StallTimeout: time.Minute, DrainTimeout: time.Minute, AdmissionTimeout: 90 * time.Second, PageBytes: 256 << 20},
		Telemetry: Telemetry{Log: "info"},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	for _, k := range keys {
		if k.served() && !strings.Contains(sample(t), k.name[strings.LastIndexByte(k.name, '.')+1:]+":") {
			t.Errorf("the sample lacks %s", k.name)
		}
	}
}

// The table itself: each default can be read and arrives, in a file as in the struct.
func TestDefaults(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range keys {
		if seen[k.name] || k.about == "" || strings.Contains(k.name+k.about, "|") {
			t.Errorf("%s: twice, without a meaning, or with a bar", k.name)
		}
		seen[k.name] = true
		if k.standard == "" || !k.scalar() {
			continue
		}
		if _, err := k.parse("", k.standard); err != nil {
			t.Errorf("%s: default %v", k.name, err)
		}
	}
	c, problems := load(t, minimal)
	if problems != nil {
		t.Fatal(problems)
	}
	if c.Memory < minMemory || c.Refresh != 30*time.Second || c.Listen != "127.0.0.1:8815" || c.Telemetry.Log != "info" {
		t.Errorf("%+v", c)
	}
}

func TestSchemas(t *testing.T) {
	c, problems := load(t, minimal+`datasets:
  - {name: a, url: /a, schema: widen}
  - {name: b, url: /b, schema: {id: int64 not null, "a b": "list<item: float>"}}
`)
	if problems != nil {
		t.Fatal(problems)
	}
	want := []Column{{"id", "int64 not null"}, {"a b", "list<item: float>"}}
	if c.Datasets[0].Schema != "widen" || c.Datasets[0].Columns != nil || !reflect.DeepEqual(c.Datasets[1].Columns, want) {
		t.Errorf("%+v", c.Datasets)
	}
	for text, want := range map[string]string{
		"loose":             `schema: "loose" is none of strict, widen`,
		"{}":                "a schema without columns",
		"{id: }":            "schema.id: a type is expected",
		"{id: [int8]}":      "schema.id: a type is expected",
		"{id: int8, id: x}": "schema.id: set twice",
		"[int8]":            "a single value is expected",
	} {
		_, problems := load(t, minimal+"datasets: [{name: a, url: /a, schema: "+text+"}]")
		if found := strings.Join(problems, "\n"); !strings.Contains(found, want) {
			t.Errorf("%s: %q, want %q", text, found, want)
		}
	}
}

// What the planned keys are documented with must not stop anybody from copying it.
func TestPlannedKeysWithTheirDefaults(t *testing.T) {
	_, problems := load(t, `
tls: {cert: "", key: "", client_ca: ""}
auth: {mode: none, jwks: "", policy: "", cut_on_expiry: false}
datasets:
  - {name: a, url: /a, schema: strict, partitioning: "", arrays: [], dim: ""}
snapshots: ""
snapshots_keep: 90h
cache: {policy: auto, disk: {dir: "", limit: 0}}
tenants: {}
limits: {drain_timeout: 60s, admission_timeout: 90s, page_bytes: 256MiB}
`)
	if problems != nil {
		t.Errorf("%q", problems)
	}
}

func TestTenants(t *testing.T) {
	c, problems := load(t, "auth: {mode: jwt, issuer: i, audience: a, keys: [{algorithm: HS256, file: k}]}\n"+
		"tenants:\n  vision: {memory: 0.5, streams: 0}\n  \"a.b c\": {memory: .25}\n  idle: {}\n  none:\n")
	want := []Tenant{{Name: "vision", Memory: .5}, {Name: "a.b c", Memory: .25}, {Name: "idle"}, {Name: "none"}}
	if problems != nil || !reflect.DeepEqual(c.Tenants, want) {
		t.Fatalf("%q, %+v", problems, c)
	}
	if c, problems := load(t, minimal+"tenants: {local: {memory: 1}}"); problems != nil || c.Tenants[0].Memory != 1 {
		t.Errorf("%q", problems)
	}
	const bad = `" is not a share such as 0.5, which is half: it is to be more than 0 and at most 1`
	for text, want := range map[string]string{
		"{local: {memory: 4GiB}}":                      `headrace.yaml:2: tenants.local.memory: "4GiB` + bad,
		"{local: {memory: 50%}}":                       `tenants.local.memory: "50%` + bad,
		"{local: {memory: 0}}":                         `tenants.local.memory: "0` + bad,
		"{local: {memory: -0.1}}":                      `tenants.local.memory: "-0.1` + bad,
		"{local: {memory: 1.5}}":                       `tenants.local.memory: "1.5` + bad,
		"{local: {memory: .nan}}":                      bad,
		"{local: {memory: 1e-3}}":                      bad,
		"{local: {memory: [1]}}":                       "tenants.local.memory: a single value is expected",
		"{local: {memori: 1}}":                         "headrace.yaml:2: tenants.local.memori: unknown key; did you mean tenants.*.memory?",
		"{local: 0.5}":                                 `tenants.local: keys with values are expected here, not "0.5"`,
		"[local]":                                      "tenants: keys with values are expected here, not a list",
		"{local: {memory: 1}, local: {}}":              "tenants.local: set twice, first at headrace.yaml:2",
		"{vision: {memory: 1}}":                        "headrace.yaml:2: tenants.vision: unknown tenant: in mode none everybody is the tenant local",
		`{"": {memory: 1}}`:                            "tenants: a tenant without a name",
		`{"a\u0007": {}}`:                              "no token bears such a name",
		"{local: {memory: 0.75}, b: {memory: 0.2501}}": "tenants: the shares of memory are 1.0001 in all, more than the 1 that there is: local 0.75, b 0.2501",
	} {
		_, problems := load(t, minimal+"tenants: "+text)
		if found := strings.Join(problems, "\n"); !strings.Contains(found, want) {
			t.Errorf("%s: %q, want %q", text, found, want)
		}
	}
}

func TestPlannedValuesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"tls: {client_ca: ca.pem}":       "tls.client_ca: ca.pem is not",
		"auth: {jwks: https://x/jwks}":   "auth.jwks: https://x/jwks is not",
		"auth: {mode: mtls}":             "auth.mode: mtls is not",
		"auth: {policy: p.yaml}":         "auth.policy: p.yaml is not",
		"auth: {cut_on_expiry: true}":    "auth.cut_on_expiry: true is not",
		"datasets: [{arrays: [t2m]}]":    "datasets[0].arrays: is not",
		"datasets: [{dim: time}]":        "datasets[0].dim: time is not",
		"tenants: {v: {streams: 6}}":     "tenants.v.streams: 6 is not",
		"tenants: {v: {bandwidth: 1GB}}": "tenants.v.bandwidth: 1GB is not",
	} {
		_, problems := load(t, text)
		if found := strings.Join(problems, "\n"); !strings.Contains(found, "headrace.yaml:1: "+want+" supported yet") {
			t.Errorf("%s: %s", text, found)
		}
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	_, problems := load(t, `listen: 0.0.0.0:8815
admn: 127.0.0.1:1
memory: lots
memory: 8GiB
tls:
  cert: a.pem
issuer: x
auth:
  mode: jwt
  isuer: https://id
  keys:
    - {algorithm: RS512, file: k.pem}
    - algorithm: HS256
datasets:
  - {name: /etc, url: "", kind: x}
  - name: a
    files: all
  - [b]
refresh: 30
limits: 5
telemetry: {log: loud, otlp: localhost}
`)
	want := []string{
		"headrace.yaml:2: admn: unknown key; did you mean admin?",
		`headrace.yaml:3: memory: "lots" is not a size such as 8GiB or 500MB`,
		"headrace.yaml:4: memory: set twice, first at headrace.yaml:3",
		"headrace.yaml:7: issuer: unknown key; did you mean auth.issuer?",
		"headrace.yaml:10: auth.isuer: unknown key; did you mean auth.issuer?",
		`headrace.yaml:12: auth.keys[0].algorithm: "RS512" is none of HS256, RS256, ES256, EdDSA`,
		"headrace.yaml:15: datasets[0].url: must not be empty",
		"headrace.yaml:15: datasets[0].kind: unknown key; there are: name, url, schema, files, exclude, partitioning",
		`headrace.yaml:17: datasets[1].files: a list is expected, not "all"`,
		"headrace.yaml:18: datasets[2]: keys with values are expected here, not a list",
		`headrace.yaml:19: refresh: "30" is not a duration such as 30s, 1m30s or 2h`,
		`headrace.yaml:20: limits: keys with values are expected here, not "5"`,
		`headrace.yaml:21: telemetry.log: "loud" is none of debug, info, warn, error`,
		"headrace.yaml: tls.key: must be set, together with tls.cert",
		"headrace.yaml:21: telemetry.otlp: must be a URL such as http://127.0.0.1:4317",
		"headrace.yaml: auth.issuer: must be set",
		"headrace.yaml: auth.audience: must be set",
		"headrace.yaml:13: auth.keys[1].file: must be set",
		"headrace.yaml:15: datasets[0].name: \"/etc\" has an empty segment, `.` or `..`",
		"headrace.yaml:16: datasets[1].url: must be set",
		"headrace.yaml:18: datasets[2].url: must be set",
		"headrace.yaml:18: datasets[2].name: must be set",
	}
	if !reflect.DeepEqual(problems, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(problems, "\n"), strings.Join(want, "\n"))
	}
}

func TestNotYAML(t *testing.T) {
	for text, want := range map[string]string{
		"auth: {mode: none":          "headrace.yaml:1: ",
		"a: b: c":                    "headrace.yaml:1: ",
		"auth: {mode: none}\n\tx: 1": "headrace.yaml:2: ",
		"- a":                        "headrace.yaml:1: keys with values",
		"hello":                      "keys with values are expected here, not \"hello\"",
		minimal + "---\n" + minimal:  "a second document",
		"auth: &a {mode: none}":      "keys with values are expected here, not an anchor",
		"auth: {mode: !!str none}":   "a single value is expected, not an anchor, alias or tag",
		"<<: {auth: {mode: none}}":   "<<: unknown key",
	} {
		if _, problems := load(t, text); !strings.Contains(strings.Join(problems, "\n"), want) {
			t.Errorf("%q: %q, want %q", text, problems, want)
		}
	}
	if _, err := Load(Source{File: filepath.Join(t.TempDir(), "none.yaml")}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestFlagsAreNamed: who gives flags is told of flags, unless a file or a variable is where the mistake is.
func TestFlagsAreNamed(t *testing.T) {
	names := map[string]string{
		"listen": "--listen", "admin": "--admin", "auth.mode": "--auth", "auth.issuer": "--issuer", "auth.audience": "--audience", "auth.keys": "--key",
		"auth.keys[].file": "--key", "auth.keys[].algorithm": "--algorithm", "tls.cert": "--tls-cert", "tls.key": "--tls-key", "insecure": "--insecure",
		"memory": "--memory",
	}
	file := write(t, minimal)
	for _, c := range []struct {
		Source
		want []string
	}{
		{Source{Flags: map[string]string{"auth.mode": "jwt"}}, []string{"--issuer: must be set", "--audience: must be set", "--key: must be set: mode jwt needs at least one key"}},
		{Source{Flags: map[string]string{"auth.mode": "yes"}}, []string{`--auth: "yes" is none of jwt, none`}},
		{Source{Flags: map[string]string{"auth.issuer": "i", "auth.audience": "a", "auth.mode": "jwt"}, Keys: []Key{{"HS999", "k", ""}, {"", "", ""}}}, []string{
			`--algorithm: "HS999" is none of HS256, RS256, ES256, EdDSA`, "--algorithm: must be set", "--key: must be set",
		}},
		{Source{Flags: map[string]string{"listen": "0.0.0.0:1"}}, []string{
			"--auth: none would let everybody who reaches 0.0.0.0:1 read everything; use jwt, listen on loopback, or force it with --insecure",
			"--listen: tokens and rows would cross the network to 0.0.0.0:1 in plaintext; set --tls-cert and --tls-key, listen on loopback, or force it with --insecure",
		}},
		{Source{Flags: map[string]string{"tls.key": "k", "admin": "127.0.0.1:8815"}}, []string{"--tls-cert: must be set, together with --tls-key", "--admin: must differ from --listen"}},
		{Source{Flags: map[string]string{"memory": "1MiB"}}, []string{"--memory: 1048576 bytes are too little; at least 128MiB are needed"}},
		{Source{Environ: []string{"HEADRACE_MEMORY=1MiB"}}, []string{"HEADRACE_MEMORY: memory: 1048576 bytes are too little; at least 128MiB are needed"}},
		{Source{File: file, Flags: map[string]string{"memory": "1MiB", "auth.mode": "jwt", "auth.issuer": "i"}}, []string{
			"--memory: 1048576 bytes are too little; at least 128MiB are needed", file + ": auth.audience: must be set",
			file + ": auth.keys: must be set: mode jwt needs at least one key",
		}},
		{Source{File: file, Flags: map[string]string{"listen": "0.0.0.0:1"}}, []string{
			file + ":1: auth.mode: none would let everybody who reaches 0.0.0.0:1 read everything; use jwt, listen on loopback, or force it with insecure: true",
			"--listen: tokens and rows would cross the network to 0.0.0.0:1 in plaintext; set tls.cert and tls.key, listen on loopback, or force it with insecure: true",
		}},
	} {
		c.Names = names
		var invalid *InvalidError
		if _, err := Load(c.Source); !errors.As(err, &invalid) || !reflect.DeepEqual(invalid.Problems, c.want) {
			t.Errorf("%+v: %v\nwant %q", c.Source, err, c.want)
		}
	}
}

func TestAuthMustBeSaid(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "listen: 127.0.0.1:0\n", "auth:\n", "auth: {mode: }\n", "auth: {issuer: x}\n"} {
		if _, problems := load(t, text); !strings.Contains(strings.Join(problems, "\n"), "auth.mode: must be set") {
			t.Errorf("%q: %q", text, problems)
		}
	}
	if c, err := Load(Source{}); err != nil || c.Auth.Mode != "none" {
		t.Errorf("without a file: %v", err)
	}
	for _, s := range []Source{
		{Flags: map[string]string{"auth.issuer": "x"}},
		{Keys: []Key{{Algorithm: "HS256", File: "k"}}},
		{Environ: []string{"HEADRACE_AUTH_AUDIENCE=x"}},
		{Flags: map[string]string{"auth.mode": "nobody"}},
		{Flags: map[string]string{"listen": "0.0.0.0:0"}},
		{Flags: map[string]string{"listen": ":8815", "tls.cert": "c", "tls.key": "k"}},
	} {
		if c, err := Load(s); err == nil {
			t.Errorf("%+v gives %+v", s, c)
		}
	}
	s := Source{
		Flags: map[string]string{"auth.mode": "jwt", "auth.issuer": "i", "auth.audience": "a", "memory": "1GiB"},
		Keys:  []Key{{Algorithm: "HS256", File: "secret"}},
	}
	c, err := Load(s)
	if err != nil || c.Auth.Keys[0].File != "secret" || c.Memory != 1<<30 {
		t.Errorf("%+v: %v", c, err)
	}
}

func TestExposure(t *testing.T) {
	const tls, jwt = "tls: {cert: c, key: k}\n", "auth: {mode: jwt, issuer: i, audience: a, keys: [{algorithm: HS256, file: f}]}\n"
	local := []string{"127.0.0.1:0", "127.9.9.9:1", `"[::1]:8815"`, "localhost:8815", "unix:/run/headrace.sock", `"[::ffff:127.0.0.1]:1"`}
	open := []string{"0.0.0.0:8815", ":8815", `"[::]:8815"`, "10.0.0.1:8815", "gateway:8815", "localhost.example.com:1", "128.0.0.1:1"}
	for _, c := range []struct {
		auth             string
		local, open, tls bool // allowed on loopback, off it, off it with TLS
	}{{minimal, true, false, false}, {jwt, true, false, true}} {
		for _, a := range local {
			if _, p := load(t, c.auth+"listen: "+a); (p == nil) != c.local {
				t.Error(a, p)
			}
		}
		for _, a := range open {
			listen := c.auth + "listen: " + a + "\n"
			if _, p := load(t, listen); (p == nil) != c.open {
				t.Error(a, p)
			}
			if _, p := load(t, listen+tls); (p == nil) != c.tls {
				t.Error(a, "TLS", p)
			}
			if _, p := load(t, listen+"insecure: true\n"); p != nil {
				t.Error(a, "insecure", p)
			}
		}
	}
}

func TestContradictions(t *testing.T) {
	for text, want := range map[string]string{
		"listen: 127.0.0.1:1\nadmin: 127.0.0.1:1":            "headrace.yaml:3: admin: must differ",
		"admin: unix:/run/a":                                 "headrace.yaml:2: admin: must be HOST:PORT",
		"listen: unix:/run/a\ntls: {cert: a, key: b}":        "tls.cert: clients speak plaintext",
		"cache: {disk: {limit: 1GiB}}":                       "headrace.yaml:2: cache.disk.limit: needs cache.disk.dir",
		"cache: {disk: {dir: /var/cache, limit: 100}}":       "headrace.yaml:2: cache.disk.limit: 100 bytes are too little; at least 16MiB",
		"cache: {disk: {dir: \"s3://b/c\", limit: 1GiB}}":    `headrace.yaml:2: cache.disk.dir: "s3://b/c" is a URL: a path on this machine`,
		"cache: {disk: {path: c}}":                           `headrace.yaml:2: cache.disk.path: unknown key; there are: dir, limit`,
		"memory: 127MiB":                                     "headrace.yaml:2: memory: 133169152 bytes are too little",
		"cache: {decoders: {min: 3, max: 2}}":                "cache.decoders.max: 2 are fewer than min, 3",
		"cache: {decoders: {grow_at: 0}}":                    "cache.decoders.grow_at: must be at least 1",
		"cache: {decoders: {min: -1}}":                       `cache.decoders.min: "-1" is not a whole number`,
		"cache: {decoders: {shrink_below: 2}}":               "cache.decoders.shrink_below: \"2\" is not a share",
		"refresh: 0s":                                        "headrace.yaml:2: refresh: must be more",
		"limits: {admission_timeout: 0s}":                    "limits.admission_timeout: must be more",
		"datasets: [{name: a, url: /a}, {name: a, url: /b}]": `datasets[1].name: "a" is taken by datasets[0]`,
		"datasets: [{name: a, url: http://x}]":               "a path or a file://, s3://, gs:// or azblob:// URL",
		"datasets: [{name: a, url: \"s3:///x\"}]":            "the bucket's name comes right after the scheme",
		"datasets: [{name: a, url: \"s3:x/y\"}]":             `datasets[0].url: "s3:x/y": a URL has :// behind its scheme`,
		"snapshots: \"file:/x\"":                             `snapshots: "file:/x": a URL has :// behind its scheme, as in s3://BUCKET/PREFIX or file:///data; a folder of that name is ./file:/x`,
		"datasets: [{name: a, url: mem://x}]":                "a path or a file://, s3://, gs:// or azblob:// URL",
		"datasets: [{name: a, url: file://host/x}]":          "a file URL needs an absolute path",
		"datasets: {name: a}":                                "datasets: a list is expected, not keys with values",
		`datasets: [{name: a, url: /a, files: [""]}]`:        "a list of texts is expected",
		"datasets: [{name: a, url: [/a]}]":                   "a single value is expected, not a list",
	} {
		if _, problems := load(t, minimal+text); !strings.Contains(strings.Join(problems, "\n"), want) {
			t.Errorf("%q: %q, want %q", text, problems, want)
		}
	}
	_, problems := load(t, `auth: {mode: jwt, issuer: i, audience: a, skew: 6m, keys: [{algorithm: HS256, file: f, kid: x}, {algorithm: HS256, file: g, kid: x}]}`)
	want := []string{"headrace.yaml:1: auth.skew: 6m0s is too much; at most 5m0s", `headrace.yaml:1: auth.keys[1].kid: "x" is taken by auth.keys[0]`}
	if !reflect.DeepEqual(problems, want) {
		t.Errorf("%q", problems)
	}
}

func TestDatasetNames(t *testing.T) {
	for _, good := range []string{"a", "a/b/c", "imagenet-1k_v2.0", "bücher", "with space", "2024"} {
		if why := badName(good); why != "" {
			t.Errorf("%q %s", good, why)
		}
	}
	for _, bad := range []string{"", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a/.", "a*", `a\b`, "a\x00b", "a\nb", "\xff", strings.Repeat("a", 256)} {
		if badName(bad) == "" {
			t.Errorf("%q is allowed", bad)
		}
	}
}

func TestEnvironment(t *testing.T) {
	jwt := "auth: {mode: jwt, issuer: i, audience: a, keys: [{algorithm: HS256, file: f}]}\n"
	c, problems := load(t, jwt,
		"HEADRACE_AUTH_ISSUER=https://other=1", "HEADRACE_LIMITS_DRAIN_TIMEOUT=5s", "HEADRACE_TLS_CERT=c.pem", "HEADRACE_TLS_KEY=k.pem",
		"HEADRACE_INSECURE=true", "HEADRACE_AUDIENCE", "HEADRACE_MEMORY=", "PATH=/bin", "HEADRACE_TOKEN=secret", "HEADRACE_PYTHON=p", "HEADRACE_CORPORA=c", "HEADRACE_STORES=s",
		"HEADRACE_SERVICE_HOST=10.0.0.1", "HEADRACE_SERVICE_PORT=8815", "HEADRACE_SERVICE_PORT_GRPC=8815", "HEADRACE_PORT=tcp://10.0.0.1:8815",
		"HEADRACE_PORT_8815_TCP=tcp://10.0.0.1:8815", "HEADRACE_PORT_8815_TCP_ADDR=10.0.0.1", "HEADRACE_ADMIN_SERVICE_HOST=10.0.0.2")
	if problems != nil {
		t.Fatal(problems)
	}
	if c.Auth.Issuer != "https://other=1" || c.Limits.DrainTimeout != 5*time.Second || c.TLS.Cert != "c.pem" || !c.Insecure {
		t.Errorf("%+v", c)
	}
	_, problems = load(t, jwt, "HEADRACE_AUTH_ISUER=x", "HEADRACE_DATASETS=[]", "HEADRACE_AUTH_JWKS=x", "HEADRACE_MEMORY=much", "HEADRACE_LISTEN_PORT=8815", "HEADRACE_=x", "HEADRACE_TENANTS_VISION_MEMORY=0.5")
	want := []string{
		"HEADRACE_: no such key", "HEADRACE_AUTH_ISUER: no such key; did you mean HEADRACE_AUTH_ISSUER?",
		"HEADRACE_AUTH_JWKS: auth.jwks: x is not supported yet",
		"HEADRACE_DATASETS: datasets can only be set in a file", "HEADRACE_LISTEN_PORT: no such key", `HEADRACE_MEMORY: memory: "much" is not a size such as 8GiB or 500MB`,
		"HEADRACE_TENANTS_VISION_MEMORY: tenants can only be set in a file",
	}
	if !reflect.DeepEqual(problems, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(problems, "\n"), strings.Join(want, "\n"))
	}
}

func TestFlagsWin(t *testing.T) {
	path := write(t, minimal+"listen: 127.0.0.1:1\nadmin: 127.0.0.1:2\nrefresh: 1s\n")
	c, err := Load(Source{File: path, Environ: []string{"HEADRACE_LISTEN=127.0.0.1:3", "HEADRACE_REFRESH=3s"}, Flags: map[string]string{"listen": "127.0.0.1:4"}})
	if err != nil || c.Listen != "127.0.0.1:4" || c.Admin != "127.0.0.1:2" || c.Refresh != 3*time.Second {
		t.Errorf("%+v: %v", c, err)
	}
	_, err = Load(Source{File: path, Flags: map[string]string{"listen": "nowhere", "lisen": "x", "datasets": "[]"}})
	for _, want := range []string{`command line: listen: "nowhere" is neither`, "command line: lisen: no such key; did you mean listen?", "command line: datasets: no such key"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// FuzzLoad reads any text: it never panics and never takes a file that does not say who may ask.
func FuzzLoad(f *testing.F) {
	f.Add(sample(f))
	f.Fuzz(func(t *testing.T, text string) {
		l := newLoader()
		l.file, l.folder = "f", "/d"
		if l.yaml([]byte(text)) != nil {
			return
		}
		l.check()
		if len(l.problems) == 0 && l.config.Auth.Mode == "" {
			t.Fatal("nobody said who may ask")
		}
	})
}
