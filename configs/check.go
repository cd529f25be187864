package configs

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	minMemory = 128 << 20 // bytes: half of it is the Go heap's, less would leave nothing to hold blocks in
	minDisk   = 16 << 20  // bytes: less would hold a few blocks at most
	maxSkew   = 5 * time.Minute
	maxName   = 255 // bytes of a dataset's name
	maxTenant = 256 // bytes of a tenant's name in a token
)

// check finds what single values cannot show: values out of range, missing ones, and those that contradict each other.
func (l *loader) check() {
	c := l.config
	l.checkExposure()
	if c.TLS.Cert == "" && c.TLS.Key != "" {
		l.problem("tls.cert", "must be set, together with %s", l.name("tls.key"))
	}
	if c.TLS.Key == "" && c.TLS.Cert != "" {
		l.problem("tls.key", "must be set, together with %s", l.name("tls.cert"))
	}
	if c.TLS.Cert != "" && strings.HasPrefix(c.Listen, "unix:") {
		l.problem("tls.cert", "clients speak plaintext over unix sockets; leave it out, the socket file's permissions protect it")
	}
	if strings.HasPrefix(c.Admin, "unix:") {
		l.problem("admin", "must be HOST:PORT")
	}
	if c.Admin == c.Listen && !strings.HasSuffix(c.Listen, ":0") {
		l.problem("admin", "must differ from %s", l.name("listen"))
	}
	if s := c.SharedMemory; s != "auto" && s != "off" && !filepath.IsAbs(s) {
		l.problem("shared_memory", "must be auto, off, or the absolute path of a socket file")
	}
	if c.Memory < minMemory {
		l.problem("memory", "%d bytes are too little; at least 128MiB are needed", c.Memory)
	}
	if c.Refresh == 0 {
		l.problem("refresh", "must be more than 0s")
	}
	if c.Limits.AdmissionTimeout == 0 {
		l.problem("limits.admission_timeout", "must be more than 0s")
	}
	if c.Limits.StallTimeout == 0 {
		l.problem("limits.stall_timeout", "must be more than 0s")
	}
	if c.Limits.PageBytes < 1<<20 || c.Limits.PageBytes > 1<<31-1 {
		l.problem("limits.page_bytes", "must be at least 1MiB, which pages usually have, and less than 2GiB, which no page can have")
	}
	if d := c.Cache.Decoders; d.Max > 0 && d.Max < d.Min {
		l.problem("cache.decoders.max", "%d are fewer than min, %d", d.Max, d.Min)
	}
	if c.Cache.Decoders.GrowAt == 0 {
		l.problem("cache.decoders.grow_at", "must be at least 1")
	}
	if u, err := url.Parse(c.Telemetry.OTLP); c.Telemetry.OTLP != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		l.problem("telemetry.otlp", "must be a URL such as http://127.0.0.1:4317")
	}
	l.checkAuth()
	l.checkDatasets()
	l.checkSnapshots()
	l.checkTenants()
	l.checkDisk()
}

func (l *loader) checkDisk() {
	switch limit := l.config.Cache.DiskLimit; {
	case limit == 0:
	case limit < minDisk:
		l.problem("cache.disk.limit", "%d bytes are too little; at least 16MiB, or 0 for none", limit)
	case l.config.Snapshots.Dir == "":
		l.problem("cache.disk.limit", "needs cache.disk.dir, the folder for it")
	}
}

// checkExposure refuses what strangers on the network could read or listen to.
func (l *loader) checkExposure() {
	c := l.config
	if c.Insecure || isLocal(c.Listen) {
		return
	}
	force := l.name("insecure")
	if force == "insecure" {
		force += ": true"
	}
	if c.Auth.Mode == "none" {
		l.problem("auth.mode", "none would let everybody who reaches %s read everything; use jwt, listen on loopback, or force it with %s", c.Listen, force)
	}
	if c.TLS.Cert == "" {
		l.problem("listen", "tokens and rows would cross the network to %s in plaintext; set %s and %s, listen on loopback, or force it with %s",
			c.Listen, l.name("tls.cert"), l.name("tls.key"), force)
	}
}

func (l *loader) checkAuth() {
	a := l.config.Auth
	if a.Mode == "" {
		l.problem("auth.mode", "must be set: jwt to believe signed tokens, none to let everybody on this machine read everything")
		return
	}
	if a.Skew > maxSkew {
		l.problem("auth.skew", "%s is too much; at most %s", a.Skew, maxSkew)
	}
	if a.Mode != "jwt" {
		return
	}
	l.required("auth.issuer", a.Issuer)
	l.required("auth.audience", a.Audience)
	l.required("auth.tenant_claim", a.TenantClaim)
	l.required("auth.grants_claim", a.GrantsClaim)
	if len(a.Keys) == 0 {
		l.problem("auth.keys", "must be set: mode jwt needs at least one key")
	}
	ids := map[string]int{}
	for i, k := range a.Keys {
		item := index("auth.keys", i)
		l.required(item+".algorithm", k.Algorithm)
		l.required(item+".file", k.File)
		if first, twice := ids[k.KeyID]; twice && k.KeyID != "" {
			l.problem(item+".kid", "%q is taken by %s", k.KeyID, index("auth.keys", first))
		}
		ids[k.KeyID] = i
	}
}

// minKeep is as fine as days of use are noted.
const minKeep = 24 * time.Hour

func (l *loader) checkSnapshots() {
	if k := l.config.Snapshots.Keep; k < minKeep {
		l.problem("snapshots_keep", "%s is too short; at least %s", k, minKeep)
	}
}

// checkTenants looks at names that no token can bear, and at shares of more than there is.
func (l *loader) checkTenants() {
	all, said := 0.0, []string{}
	for _, t := range l.config.Tenants {
		item := "tenants." + t.Name
		switch {
		case t.Name == "":
			l.problem("tenants", "a tenant without a name")
		case len(t.Name) > maxTenant || !utf8.ValidString(t.Name) || strings.ContainsFunc(t.Name, unicode.IsControl):
			l.problem(item, "no token bears such a name: it has more than %d bytes, bad UTF-8 or a control character", maxTenant)
		case l.config.Auth.Mode == "none" && t.Name != "local":
			l.problem(item, "unknown tenant: in mode none everybody is the tenant local")
		}
		if all += t.Memory; t.Memory > 0 {
			said = append(said, fmt.Sprintf("%s %g", t.Name, t.Memory))
		}
	}
	if all > 1+1e-9 {
		l.problem("tenants", "the shares of memory are %.6g in all, more than the 1 that there is: %s", all, strings.Join(said, ", "))
	}
}

func (l *loader) checkDatasets() {
	names := map[string]int{}
	for i, d := range l.config.Datasets {
		item := index("datasets", i)
		l.required(item+".url", d.URL)
		if d.Name == "" {
			l.required(item+".name", d.Name)
			continue
		}
		if why := badName(d.Name); why != "" {
			l.problem(item+".name", "%.80q %s", d.Name, why)
		}
		if first, twice := names[d.Name]; twice {
			l.problem(item+".name", "%q is taken by %s", d.Name, index("datasets", first))
		}
		names[d.Name] = i
	}
}

// required notes an empty value; for a key that was never written, at the line of the item it belongs to.
func (l *loader) required(key, value string) {
	if value != "" {
		return
	}
	if item, _, ok := strings.Cut(key, "]."); ok && l.where[key] == "" {
		l.where[key] = l.where[item+"]"]
	}
	l.problem(key, "must be set")
}

// badName says why a name cannot be a dataset's, or nothing. Grants use `*` as a wildcard, so no name has one.
func badName(name string) string {
	switch {
	case len(name) > maxName:
		return "is longer than 255 bytes"
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return "has bad UTF-8 or a control character"
	case strings.ContainsAny(name, `*\`):
		return "has a `*` or a backslash"
	}
	for s := range strings.SplitSeq(name, "/") {
		if s == "" || s == "." || s == ".." {
			return "has an empty segment, `.` or `..`"
		}
	}
	return ""
}

func index(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }
