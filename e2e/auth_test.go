package e2e

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	issuer   = "https://id.example.com"
	audience = "headrace"
)

// secret makes an HMAC key file.
func secret(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte("correct horse battery staple, twice over\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// mint makes a token with the command that users have.
func mint(t *testing.T, key, tenant string, more ...string) string {
	t.Helper()
	args := []string{"token", "--key", key, "--algorithm", "HS256", "--issuer", issuer, "--audience", audience, "--tenant", tenant}
	out, errOut, err := run(t, append(args, more...)...)
	if err != nil {
		t.Fatalf("token: %v %s", err, errOut)
	}
	return strings.TrimSpace(out)
}

// expired is a token that was good until an hour ago.
func expired(t *testing.T, key string) string {
	t.Helper()
	text, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	claims := fmt.Sprintf(`{"iss":%q,"aud":%q,"sub":"s","tenant":"t","headrace":["*"],"exp":%d}`, issuer, audience, time.Now().Add(-time.Hour).Unix())
	signed := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode([]byte(claims))
	mac := hmac.New(sha256.New, bytes.TrimSuffix(text, []byte("\n")))
	mac.Write([]byte(signed))
	return signed + "." + encode(mac.Sum(nil))
}

// withTokens starts a gateway that asks for tokens.
func withTokens(t *testing.T, dir, key string, more ...string) *server {
	t.Helper()
	args := []string{dir, "--auth", "jwt", "--key", key, "--algorithm", "HS256", "--issuer", issuer, "--audience", audience}
	return serve(t, append(args, more...)...)
}

func TestTokens(t *testing.T) {
	dir, key := folders(t), secret(t)
	s := withTokens(t, dir, key)
	python(t, `
uri, words, both, expired = sys.argv[1:]
client = fl.connect(uri)
path = fl.FlightDescriptor.for_path("words")
calls = [
    lambda o: client.get_flight_info(path, o),
    lambda o: client.get_schema(path, o),
    lambda o: list(client.list_flights(b"", o)),
    lambda o: list(client.list_actions(o)),
    lambda o: list(client.do_action(("headrace.stats", b""), o)),
    lambda o: client.do_get(fl.Ticket(b'{"dataset": "words"}'), o).read_all(),
]
bad = [fl.FlightCallOptions(), auth(""), auth("x.y.z"), auth(words[:-3] + "AAA"), auth(expired), fl.FlightCallOptions(headers=[(b"authorization", b"Basic QTpC")])]
for i, call in enumerate(calls):
    for j, options in enumerate(bad):
        try:
            call(options)
            raise SystemExit(f"call {i} went through with token {j}")
        except fl.FlightUnauthenticatedError:
            pass
        except OSError as e:  # what pyarrow's get_schema makes of it
            assert i == 1 and "Unauthenticated" in str(e), e
    call(auth(words))
    call(fl.FlightCallOptions(headers=[(b"authorization", b"BEARER " + words.encode())]))
for put in (lambda: client.do_put(path, pa.schema([]), auth(words))[0].close(), lambda: client.do_exchange(path, auth(words))[1].read_all()):
    try:
        put()
        raise SystemExit("writing was allowed")
    except pa.ArrowNotImplementedError:
        pass
assert [f.descriptor.path[0] for f in client.list_flights(b"", auth(words))] == [b"words"]
assert len(list(client.list_flights(b"", auth(both)))) == 2
try:
    client.get_flight_info(fl.FlightDescriptor.for_path("vectors"), auth(words))
    raise SystemExit("another's dataset was planned")
except KeyError as e:
    hidden = str(e).replace("vectors", "nowhere")
try:
    client.get_flight_info(fl.FlightDescriptor.for_path("nowhere"), auth(words))
    raise SystemExit("a missing dataset was planned")
except KeyError as e:
    assert str(e) == hidden, (str(e), hidden)
`, s.uri, mint(t, key, "t", "--grant", "words"), mint(t, key, "t", "--grant", "*"), expired(t, key))
	if !strings.Contains(s.log.String(), `"msg":"read"`) || !strings.Contains(s.log.String(), `"msg":"read refused"`) {
		t.Error("the log has no audit lines")
	}
	if strings.Contains(s.log.String(), mint(t, key, "t")[:40]) {
		t.Error("a token stands in the log")
	}
}

// A stream outlives its token until its end; the next call needs a new one.
func TestB49StreamsOutliveTheirToken(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits until a token has expired")
	}
	dir, key := large(t, "arrow"), secret(t)
	config := filepath.Join(t.TempDir(), "headrace.yaml")
	text := fmt.Sprintf("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nauth: {mode: jwt, issuer: %q, audience: %q, skew: 0s, keys: [{algorithm: HS256, file: %q}]}\n"+
		"datasets: [{name: d, url: %q}]\n", issuer, audience, key, dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveOn(t, "", "--config", config)
	python(t, `
import base64
client, token = fl.connect(sys.argv[1]), auth(sys.argv[2])
claims = sys.argv[2].split(".")[1]
rows, expired = 0, json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"] + 1
for chunk in client.do_get(fl.Ticket(b'{"dataset": "d"}'), token):
    rows += chunk.data.num_rows
    if rows < 30_000:
        time.sleep(max(0, expired - time.time()))
assert rows == 200_000, rows
try:
    list(client.list_flights(b"", token))
    raise SystemExit("an expired token was taken")
except fl.FlightUnauthenticatedError:
    pass
`, s.uri, mint(t, key, "t", "--grant", "d", "--ttl", "20s"))
}

func TestColumnGrants(t *testing.T) {
	dir, key := folders(t), secret(t)
	s := withTokens(t, dir, key)
	python(t, `
client, token = fl.connect(sys.argv[1]), auth(sys.argv[2])
info = client.get_flight_info(fl.FlightDescriptor.for_path("words"), token)
assert info.schema.names == ["id", "kind"], info.schema
got = client.do_get(info.endpoints[0].ticket, token).read_all()
assert got.column_names == ["id", "kind"]
for column in ("text", "nothing", ["text"], "tex", "texts", "vectors", "kinds"):
    try:
        client.get_flight_info(request(dataset="words", columns=[column]), token)
        raise SystemExit(f"column {column} was planned")
    except KeyError as e:
        assert "".join(column) in str(e), e
        # the near name of a column is told where that is granted, and of no other
        assert ("mean" in str(e)) == (column == "kinds") == ('"kind"' in str(e)), e
`, s.uri, mint(t, key, "t", "--grant", `{"datasets": "words", "columns": ["id", "kind", "elsewhere"]}`))
}

func TestKeyRotation(t *testing.T) {
	dir, key := folders(t), secret(t)
	s := withTokens(t, dir, key)
	old := mint(t, key, "t", "--grant", "*")
	fresh := secret(t)
	if err := os.WriteFile(fresh, []byte("another secret, just as long as the other one"), 0o600); err != nil {
		t.Fatal(err)
	}
	token := mint(t, fresh, "t", "--grant", "*")
	if err := os.Rename(fresh, key); err != nil {
		t.Fatal(err)
	}
	python(t, `
client = fl.connect(sys.argv[1])
def ok(token):
    try:
        return list(client.list_flights(b"", auth(token))) and True
    except fl.FlightUnauthenticatedError:
        return False
deadline = time.time() + 20
while not ok(sys.argv[2]):
    assert time.time() < deadline, "the new key is not used"
    time.sleep(0.1)
assert not ok(sys.argv[3]), "the old key still counts"
`, s.uri, token, old)
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	python(t, `
import subprocess
pq.write_table(pa.table({"a": [1, 2, 3]}), sys.argv[1] + "/x.parquet")
`, dir)
	certs := t.TempDir()
	makeCertificate(t, certs, 1)
	s := serve(t, dir, "--tls-cert", certs+"/cert.pem", "--tls-key", certs+"/key.pem")
	if !strings.HasPrefix(s.uri, "grpc+tls://") {
		t.Fatalf("uri %s", s.uri)
	}
	const script = `
client = fl.connect(sys.argv[1], tls_root_certs=Path(sys.argv[2], "cert.pem").read_bytes())
deadline = time.time() + 20
while True:
    try:
        assert read(client, dataset=sys.argv[3])["a"].to_pylist() == [1, 2, 3]
        break
    except fl.FlightUnavailableError:
        assert time.time() < deadline
        client = fl.connect(sys.argv[1], tls_root_certs=Path(sys.argv[2], "cert.pem").read_bytes())
        time.sleep(0.2)
`
	python(t, script, s.uri, certs, filepath.Base(dir))
	if out, errOut, err := run(t, "ls", "--server", s.uri, "--tls-ca", certs+"/cert.pem"); err != nil || !strings.Contains(out, filepath.Base(dir)) {
		t.Errorf("ls with --tls-ca: %v %s%s", err, out, errOut)
	}
	if _, errOut, err := run(t, "ls", "--server", s.uri); err == nil || !strings.Contains(errOut, "--tls-ca names") {
		t.Errorf("ls without --tls-ca: %v %s", err, errOut)
	}
	python(t, `
import headrace
def told(uri, ca=None):
    try:
        headrace.connect(uri, tls_ca=ca).datasets()
    except headrace.HeadraceError as error:
        assert type(error) is headrace.HeadraceError, f"it was tried again: {error!r}"
        return str(error)
certs = Path(sys.argv[2])
assert told(sys.argv[1], certs / "cert.pem") is None
assert "tls_ca=" in told(sys.argv[1])
assert "no certificate in" in told(sys.argv[1], certs / "key.pem")
assert "grpc://" in told(sys.argv[3].replace("grpc://", "grpc+tls://"))
`, s.uri, certs, serve(t, dir).uri)
	makeCertificate(t, certs, 2) // renewed without a restart
	python(t, script, s.uri, certs, filepath.Base(dir))
}

func TestPlaintextOffLoopbackIsRefused(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{
		{dir, "--listen", "0.0.0.0:0"},
		{dir, "--listen", "0.0.0.0:0", "--auth", "jwt", "--key", secret(t), "--algorithm", "HS256", "--issuer", issuer, "--audience", audience},
		{dir, "--listen", ":0"},
	} {
		_, errOut, err := run(t, append([]string{"serve", "--admin", "127.0.0.1:0"}, args...)...)
		if err == nil || !strings.Contains(errOut, "insecure") {
			t.Errorf("%v: %v %s", args, err, errOut)
		}
	}
}
