package configs

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// key is one row of the table: all that is known about a key.
type key struct {
	name     string   // dotted, "[]" where the items of a list begin, "*" for the name of an item
	kind     kind     // how its text is read
	standard string   // the default, as one would write it; "" if there is none
	shown    string   // the default in words, where it is computed
	one      []string // the only values there are
	soon     []string // values that are planned and refused as such
	about    string   // what it means, for people
	// at says where the value is kept: a pointer into the configuration. Nil: planned; nothing but the default is accepted.
	at func(*Config) any
}

// keys is the table. Its order is that of the explanation and the reference.
var keys = []key{
	{
		name: "listen", kind: anAddress, standard: "127.0.0.1:8815",
		about: "Where clients connect: `HOST:PORT`, or `unix:/PATH` for a socket file. Port 0 picks a free one; without a host the gateway listens on all interfaces.",
		at:    func(c *Config) any { return &c.Listen },
	},
	{
		name: "admin", kind: anAddress, standard: "127.0.0.1:9464",
		about: "Where `/healthz`, `/readyz` and `/metrics` are served in plain HTTP, without tokens: `HOST:PORT`. No rows and no tokens pass here, but names of tenants and datasets do: keep it inside the cluster.",
		at:    func(c *Config) any { return &c.Admin },
	},
	{
		name: "shared_memory", kind: aText, standard: "auto",
		about: "Where clients on the same host are handed messages in shared memory instead of over the connection: `auto`, `off`, or the path of a socket file, which containers can share as a volume. `auto` is a socket without a file, for all processes in the gateway's network namespace. Linux only.",
		at:    func(c *Config) any { return &c.SharedMemory },
	},
	{
		name: "insecure", kind: aBool, standard: "false",
		about: "Allow plaintext, and mode `none`, on addresses that other machines can reach.",
		at:    func(c *Config) any { return &c.Insecure },
	},
	{
		name: "tls.cert", kind: aPath, about: "Certificate chain, PEM. Read again when it changes.",
		at: func(c *Config) any { return &c.TLS.Cert },
	},
	{
		name: "tls.key", kind: aPath, about: "Private key of the certificate, PEM. Read again when it changes.",
		at: func(c *Config) any { return &c.TLS.Key },
	},
	{name: "tls.client_ca", kind: aPath, about: "Certificates that clients must present."},
	{
		name: "memory", kind: aSize, shown: "half of the container's limit, else a quarter of the machine",
		about: "The most memory that the gateway's data may take, at least 128MiB. An eighth of it, at least 64MiB, is kept for everything else.",
		at:    func(c *Config) any { return &c.Memory },
	},

	{
		name: "auth.mode", kind: aText, one: []string{"jwt", "none"}, soon: []string{"mtls"},
		about: "Who may ask: `jwt` believes signed tokens; `none` lets everybody read everything as tenant `local`. A configuration file must say.",
		at:    func(c *Config) any { return &c.Auth.Mode },
	},
	{
		name: "auth.issuer", kind: aText, about: "The `iss` of the tokens. Required in mode `jwt`.",
		at: func(c *Config) any { return &c.Auth.Issuer },
	},
	{
		name: "auth.audience", kind: aText, about: "What `aud` of the tokens must be or contain. Required in mode `jwt`.",
		at: func(c *Config) any { return &c.Auth.Audience },
	},
	{
		name: "auth.keys", kind: itemList, about: "The keys that tokens may be signed with; at least one in mode `jwt`. Files are read again when they change.",
		at: func(c *Config) any { return &c.Auth.Keys },
	},
	{
		name: "auth.keys[].algorithm", kind: aText, one: []string{"HS256", "RS256", "ES256", "EdDSA"},
		about: "The one algorithm that this key is used for, whatever a token says.",
		at:    func(c *Config) any { return &last(c.Auth.Keys).Algorithm },
	},
	{
		name: "auth.keys[].file", kind: aPath,
		about: "For HS256 the secret: the file's bytes less one final newline, at least 32. For the others a public key or a certificate, PEM.",
		at:    func(c *Config) any { return &last(c.Auth.Keys).File },
	},
	{
		name: "auth.keys[].kid", kind: aText, about: "Use this key only for tokens with this `kid`, or none. Empty: for all.",
		at: func(c *Config) any { return &last(c.Auth.Keys).KeyID },
	},
	{name: "auth.jwks", kind: aText, about: "URL of a key set."},
	{
		name: "auth.tenant_claim", kind: aText, standard: "tenant",
		about: "The claim that names the tenant; dots lead into nested objects. A token without it is refused.",
		at:    func(c *Config) any { return &c.Auth.TenantClaim },
	},
	{
		name: "auth.grants_claim", kind: aText, standard: "headrace",
		about: "The claim that lists what may be read; dots lead into nested objects. A token without it may read nothing.",
		at:    func(c *Config) any { return &c.Auth.GrantsClaim },
	},
	{name: "auth.policy", kind: aPath, about: "A file of grants by tenant and subject."},
	{
		name: "auth.skew", kind: aDuration, standard: "30s",
		about: "How far the clocks of the issuer and the gateway may differ, at most 5m.",
		at:    func(c *Config) any { return &c.Auth.Skew },
	},
	{name: "auth.cut_on_expiry", kind: aBool, standard: "false", about: "End streams when their token expires. Now they go on to their end."},

	{
		name: "datasets", kind: itemList, about: "The datasets that are served.",
		at: func(c *Config) any { return &c.Datasets },
	},
	{
		name: "datasets[].name", kind: aText, about: "The dataset's name: segments with slashes between them, such as `imagenet/train`.",
		at: func(c *Config) any { return &last(c.Datasets).Name },
	},
	{
		name: "datasets[].url", kind: aLocation, about: "The folder or the bucket that holds its files: a path, or a URL such as `file:///data`, `s3://BUCKET/PREFIX?region=eu-central-1`, `gs://BUCKET/PREFIX`, `azblob://CONTAINER/PREFIX?account=NAME`. See the page on stores for all parameters; keys and passwords do not belong here.",
		at: func(c *Config) any { return &last(c.Datasets).URL },
	},
	{
		name: "datasets[].schema", kind: aSchema, standard: "strict", one: []string{"strict", "widen"},
		about: "What the schemas of its files must share. `strict`: the same names and types. `widen`: what a file lacks is null there, and the narrowest type that holds all is served. Or the columns that are served, with their types as pyarrow writes them: `{id: int64, words: \"list<string>\"}`.",
		at:    func(c *Config) any { return &last(c.Datasets).Schema },
	},
	{
		name: "datasets[].files", kind: textList, standard: "[]",
		about: "Globs of the files that belong to it, such as `\"**/*.parquet\"`; or one `\"@KEY\"`, a file below the URL that lists their keys, one a line. Empty: every file with a known ending.",
		at:    func(c *Config) any { return &last(c.Datasets).Files },
	},
	{
		name: "datasets[].exclude", kind: textList, standard: "[]", about: "Globs of files that do not belong to it, whatever `files` says.",
		at: func(c *Config) any { return &last(c.Datasets).Exclude },
	},
	{
		name: "datasets[].partitioning", kind: aText, one: []string{"hive"},
		about: "`hive` makes a column of every folder named `key=value`: int64 or date32 if all its values are written so, else string, or as `schema` says. Empty: names of folders mean nothing.",
		at:    func(c *Config) any { return &last(c.Datasets).Partitioning },
	},
	{name: "datasets[].arrays", kind: textList, standard: "[]", about: "The Zarr arrays that are columns."},
	{name: "datasets[].dim", kind: aText, about: "The Zarr dimension that rows are counted along."},

	{
		name: "refresh", kind: aDuration, standard: "30s", about: "How old a listing of a dataset's files may be: new files are seen after this time.",
		at: func(c *Config) any { return &c.Refresh },
	},
	{
		name: "snapshots", kind: aLocation, about: "A folder or bucket that gateways share their snapshots in, so that each honours the cursors of all: a path or URL, as for `datasets[].url`. Whoever may write there is trusted.",
		at: func(c *Config) any { return &c.Snapshots.URL },
	},
	{
		name: "snapshots_keep", kind: aDuration, standard: "2160h", about: "How long snapshots are kept after the last plan on them; at least 24h. Those with a tag are kept for good.",
		at: func(c *Config) any { return &c.Snapshots.Keep },
	},

	{
		name: "cache.policy", kind: aText, standard: "auto", one: []string{"auto", "lru", "lfu", "adaptive", "pinned"},
		about: "Which decoded blocks stay in memory that no stream needs. `pinned`: those that came first; right for training, which reads every block once an epoch. `lru`, `lfu`: those used last, or most often. `adaptive`: a mixture of both that follows what happens. `auto`: `pinned` while all live plans are of training, else `adaptive`. Read again when the file changes; what is kept stays.",
		at:    func(c *Config) any { return &c.Cache.Policy },
	},
	{
		name: "cache.disk.dir", kind: aPath, about: "The cache directory: a folder of this gateway's own. Snapshots are kept in it, so that a restart looks at no file again. Empty: the user's cache directory, unless `snapshots` is set.",
		at: func(c *Config) any { return &c.Snapshots.Dir },
	},
	{
		name: "cache.disk.limit", kind: aSize, standard: "0", about: "The most bytes of decoded blocks in that folder, at least 16MiB. Blocks of stores and of Parquet files are written there, and served from there after a restart, or when memory has no room for them. 0: none. One gateway at a time may use the folder then.",
		at: func(c *Config) any { return &c.Cache.DiskLimit },
	},
	{
		name: "cache.decoders.min", kind: aCount, standard: "0", about: "The fewest blocks that are decoded at a time, and how many are at first. 0: as many as there are processors in the container's quota. Blocks that wait for a store do not count.",
		at: func(c *Config) any { return &c.Cache.Decoders.Min },
	},
	{
		name: "cache.decoders.max", kind: aCount, standard: "0", about: "The most blocks that are decoded at a time. 0: four times as many as there are processors, for decoders that wait for disks.",
		at: func(c *Config) any { return &c.Cache.Decoders.Max },
	},
	{
		name: "cache.decoders.grow_at", kind: aCount, standard: "128", about: "How many blocks that wait for a decoder bring another one, while processors are idle. At least 1.",
		at: func(c *Config) any { return &c.Cache.Decoders.GrowAt },
	},
	{
		name: "cache.decoders.shrink_below", kind: aShare, standard: "0.3", about: "A decoder goes when less than this part of the processors is in use, and fewer blocks wait.",
		at: func(c *Config) any { return &c.Cache.Decoders.ShrinkBelow },
	},
	{
		name: "tenants", kind: aTable, standard: "{}",
		about: "What single tenants may have, by the name that their tokens bear: `{vision: {memory: 0.5}}`. In mode `none` everybody is `local`.",
		at:    func(c *Config) any { return &c.Tenants },
	},
	{
		name: "tenants.*.memory", kind: aShare,
		about: "The part of what is kept in memory that no other tenant pushes this one below: more than 0, all tenants' together at most 1. While others do not need it, a tenant keeps more. Tenants that are not listed, or without it, share what is left.",
		at:    func(c *Config) any { return &last(c.Tenants).Memory },
	},
	{name: "tenants.*.streams", kind: aNumber, standard: "0", about: "The most streams of the tenant at once."},
	{name: "tenants.*.bandwidth", kind: aSize, standard: "0", about: "The most bytes that are sent to the tenant in a second."},

	{
		name: "limits.stall_timeout", kind: aDuration, standard: "60s",
		about: "How long a stream's client may take nothing while others wait for memory; then the stream ends, and its cursor resumes it.",
		at:    func(c *Config) any { return &c.Limits.StallTimeout },
	},
	{
		name: "limits.drain_timeout", kind: aDuration, standard: "60s", about: "How long running streams may go on after SIGTERM.",
		at: func(c *Config) any { return &c.Limits.DrainTimeout },
	},
	{
		name: "limits.admission_timeout", kind: aDuration, standard: "90s", about: "How long a stream may wait for memory before it is refused.",
		at: func(c *Config) any { return &c.Limits.AdmissionTimeout },
	},
	{
		name: "limits.page_bytes", kind: aSize, standard: "256MiB", about: "The largest Parquet page that is decoded, as stored or decompressed.",
		at: func(c *Config) any { return &c.Limits.PageBytes },
	},

	{
		name: "telemetry.otlp", kind: aText, about: "The collector that traces go to: the URL of its OTLP/gRPC port, such as `http://127.0.0.1:4317`. Empty: none.",
		at: func(c *Config) any { return &c.Telemetry.OTLP },
	},
	{
		name: "telemetry.log", kind: aText, standard: "info", one: []string{"debug", "info", "warn", "error"},
		about: "The least severe log lines that are written, to standard error.",
		at:    func(c *Config) any { return &c.Telemetry.Log },
	},
}

// served reports whether the key does anything yet.
func (k key) served() bool { return k.at != nil }

// inList reports whether the key belongs to the items of a list, or to those of a table.
func (k key) inList() bool { return strings.Contains(k.name, "[]") || strings.Contains(k.name, ".*.") }

// scalar reports whether the value is one text, as the environment and the command line can give it.
func (k key) scalar() bool {
	return !k.inList() && k.kind != itemList && k.kind != textList && k.kind != aTable
}

// parse reads the text of a scalar. Relative paths are joined to the folder.
func (k key) parse(folder, text string) (any, error) {
	if text == "" && k.kind == aLocation && !k.inList() {
		return "", nil // none
	}
	value, err := k.kind.parse(folder, text)
	switch {
	case err != nil:
		return nil, err
	case !k.served():
		if value != k.parsed(k.standard) {
			return nil, errUnsupported(text)
		}
	case slices.Contains(k.soon, text):
		return nil, errUnsupported(text)
	case k.one != nil && text != k.standard && !slices.Contains(k.one, text):
		return nil, fmt.Errorf("%q is none of %s", text, strings.Join(k.one, ", "))
	}
	return value, nil
}

// parsed reads a default, which a test proves to be readable.
func (k key) parsed(standard string) any {
	if k.kind == textList {
		return []string(nil)
	}
	value, _ := k.kind.parse("", standard)
	return value
}

// store puts a value where the configuration keeps it.
func (k key) store(c *Config, value any) {
	if !k.served() {
		return
	}
	switch p := k.at(c).(type) {
	case *string:
		*p = value.(string)
	case *bool:
		*p = value.(bool)
	case *int:
		*p = value.(int)
	case *int64:
		*p = value.(int64)
	case *float64:
		*p = value.(float64)
	case *time.Duration:
		*p = value.(time.Duration)
	case *[]string:
		*p = value.([]string)
	}
}

// grow adds an empty item to a list; the keys of the list then speak of that one.
func (k key) grow(c *Config) {
	switch p := k.at(c).(type) {
	case *[]Key:
		*p = append(*p, Key{})
	case *[]Dataset:
		*p = append(*p, Dataset{})
	}
}

// entitle adds an item with a name to a table; the keys of the table then speak of that one.
func (k key) entitle(c *Config, name string) {
	if p, ok := k.at(c).(*[]Tenant); ok {
		*p = append(*p, Tenant{Name: name})
	}
}

func last[T any](list []T) *T { return &list[len(list)-1] }

func errUnsupported(text string) error { return fmt.Errorf("%.80s is not supported yet", text) }

// find returns the row of a key.
func find(name string) (key, bool) {
	i := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
	if i < 0 {
		return key{}, false
	}
	return keys[i], true
}

// group reports whether keys begin with the prefix, which ends in a dot.
func group(prefix string) bool {
	return slices.ContainsFunc(keys, func(k key) bool { return strings.HasPrefix(k.name, prefix) })
}
