// Package buckettest starts real object stores for tests, puts trouble in front of them, and holds what every bucket must do.
//
// The stores are programs that make installs (make stores) and that the
// environment variable HEADRACE_STORES leads to. They run on loopback, on ports
// that were free, for one test, which ends them.
package buckettest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/headrace/headrace/storage/bucket"
)

// The credentials that the stores know.
const (
	AccessKey    = "testkey"
	SecretKey    = "testsecret123"
	AzureAccount = "devstoreaccount1"
	AzureKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Store is a running object store with the bucket "data" in it.
type Store struct {
	Endpoint string            // http://127.0.0.1:PORT, and for Azure the account
	Env      map[string]string // what a client needs in its environment
	scheme   string
	query    url.Values
	dir      string // where an S3 server keeps the objects of the bucket as files
}

// URL is what leads to a prefix of the bucket, with parameters of one's own:
// name and value in turn.
func (s *Store) URL(prefix string, parameters ...string) string {
	q := url.Values{}
	for k, v := range s.query {
		q[k] = v
	}
	q.Set("endpoint", s.Endpoint)
	for i := 0; i+1 < len(parameters); i += 2 {
		q.Set(parameters[i], parameters[i+1])
	}
	return (&url.URL{Scheme: s.scheme, Host: "data", Path: "/" + prefix, RawQuery: q.Encode()}).String()
}

// Behind is the same store, reached by another address: that of a proxy.
func (s *Store) Behind(address string) *Store {
	behind := *s
	u, err := url.Parse(s.Endpoint)
	if err != nil {
		panic(err) // it was made here
	}
	u.Host = address
	behind.Endpoint = u.String()
	return &behind
}

// Host is the address and port of the server.
func (s *Store) Host() string {
	u, err := url.Parse(s.Endpoint)
	if err != nil {
		panic(err) // it was made here
	}
	return u.Host
}

// Dir is the folder in which an S3 server keeps the bucket: data that are put
// there are objects.
func (s *Store) Dir() string { return s.dir }

// tool returns the path of an installed program; without it the test is skipped.
func tool(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("HEADRACE_STORES")
	if dir == "" {
		t.Skip("HEADRACE_STORES does not say where the object stores are: make stores installs them, make test sets it")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		if name == "azurite-blob" { // the only one that takes Node, which not every machine has
			t.Skipf("HEADRACE_STORES: %v; make stores installs it where there is Node", err)
		}
		t.Fatalf("HEADRACE_STORES: %v; make stores installs it", err)
	}
	return path
}

// free returns a port that nobody listens on.
func free(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start runs a program until the test ends, and waits until it listens.
func start(t testing.TB, env []string, address string, name string, args ...string) {
	t.Helper()
	var said bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be gone already
		<-ended
	})
	deadline := time.Now().Add(30 * time.Second)
	for {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			c.Close()
			return
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ended: %v\n%s", filepath.Base(name), err, &said)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not listen: %v", filepath.Base(name), err)
		}
	}
}

// S3 starts a store that speaks S3. Its bucket keeps no versions.
func S3(t testing.TB) *Store { return startS3(t, false) }

// VersionedS3 starts one whose bucket keeps the versions of its objects.
func VersionedS3(t testing.TB) *Store { return startS3(t, true) }

func startS3(t testing.TB, versions bool) *Store {
	t.Helper()
	root, address := t.TempDir(), free(t)
	dir := filepath.Join(root, "buckets", "data")
	args := []string{"--quiet", "--keep-alive", "--port", address, "posix"}
	for _, d := range []string{dir, filepath.Join(root, "versions")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if versions {
		args = append(args, "--versioning-dir", filepath.Join(root, "versions"))
	}
	start(t, []string{"ROOT_ACCESS_KEY_ID=" + AccessKey, "ROOT_SECRET_ACCESS_KEY=" + SecretKey}, address,
		tool(t, "versitygw"), append(args, filepath.Join(root, "buckets"))...)
	if versions {
		keepVersions(t, address)
	}
	return &Store{
		Endpoint: "http://" + address, scheme: "s3", query: url.Values{"region": {"us-east-1"}}, dir: dir,
		Env: map[string]string{
			"AWS_ACCESS_KEY_ID": AccessKey, "AWS_SECRET_ACCESS_KEY": SecretKey, "AWS_EC2_METADATA_DISABLED": "true",
			"AWS_CONFIG_FILE": filepath.Join(root, "none"), "AWS_SHARED_CREDENTIALS_FILE": filepath.Join(root, "none"),
		},
	}
}

// keepVersions makes the bucket keep the versions of its objects.
func keepVersions(t testing.TB, address string) {
	t.Helper()
	client := &http.Client{}
	defer client.CloseIdleConnections()
	c := s3.New(s3.Options{
		BaseEndpoint: aws.String("http://" + address), Region: "us-east-1", UsePathStyle: true, HTTPClient: client,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: AccessKey, SecretAccessKey: SecretKey}, nil
		}),
	})
	_, err := c.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
		Bucket: aws.String("data"), VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// GCS starts a store that speaks Google's JSON API.
func GCS(t testing.TB) *Store {
	t.Helper()
	address := free(t)
	_, port, _ := net.SplitHostPort(address)
	start(t, nil, address, tool(t, "fake-gcs-server"), "-scheme", "http", "-host", "127.0.0.1", "-port", port,
		"-backend", "memory", "-public-host", address, "-log-level", "error")
	body, _ := json.Marshal(map[string]string{"name": "data"})
	resp, err := http.Post("http://"+address+"/storage/v1/b?project=test", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the bucket was not made: %s", resp.Status)
	}
	return &Store{Endpoint: "http://" + address, scheme: "gs", query: url.Values{"anonymous": {"true"}}}
}

// Azure starts a store that speaks like Azure Blob Storage.
func Azure(t testing.TB) *Store {
	t.Helper()
	address := free(t)
	host, port, _ := net.SplitHostPort(address)
	start(t, nil, address, tool(t, "azurite-blob"), "--silent", "--skipApiVersionCheck", "--disableProductStyleUrl", "--inMemoryPersistence",
		"--blobHost", host, "--blobPort", port)
	s := &Store{
		Endpoint: fmt.Sprintf("http://%s/%s", address, AzureAccount), scheme: "azblob",
		Env: map[string]string{"AZURE_STORAGE_ACCOUNT": AzureAccount, "AZURE_STORAGE_KEY": AzureKey},
	}
	key, err := container.NewSharedKeyCredential(AzureAccount, AzureKey)
	if err != nil {
		t.Fatal(err)
	}
	c, err := container.NewClientWithSharedKeyCredential(s.Endpoint+"/data", key, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	return s
}

// Toxic starts a proxy in front of a store, and returns the store as reached
// through it and a function that adds a toxic: one of toxiproxy's, such as
// "latency", with its attributes.
func Toxic(t testing.TB, s *Store) (*Store, func(kind string, toxicity float64, attributes map[string]any)) {
	t.Helper()
	control, address := free(t), free(t)
	host, port, _ := net.SplitHostPort(control)
	start(t, []string{"LOG_LEVEL=error"}, control, tool(t, "toxiproxy"), "-host", host, "-port", port)
	client := &http.Client{}
	t.Cleanup(client.CloseIdleConnections)
	post := func(path string, body any) {
		t.Helper()
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Post("http://"+control+path, "application/json", bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode >= 300 {
			t.Fatal(errors.New(path + ": " + resp.Status))
		}
	}
	post("/proxies", map[string]any{"name": "store", "listen": address, "upstream": s.Host(), "enabled": true})
	n := 0
	return s.Behind(address), func(kind string, toxicity float64, attributes map[string]any) {
		t.Helper()
		n++
		post("/proxies/store/toxics", map[string]any{
			"name": fmt.Sprintf("toxic%d", n), "type": kind, "stream": "downstream", "toxicity": toxicity, "attributes": attributes,
		})
	}
}

// Use puts what clients of the store need into the environment of the test.
func (s *Store) Use(t testing.TB) {
	for k, v := range s.Env {
		t.Setenv(k, v)
	}
}

// Upload puts the files of a folder, and of those in it, under a prefix.
func (s *Store) Upload(t testing.TB, prefix, dir string) {
	t.Helper()
	s.Use(t)
	c := bucket.NewClients(bucket.Options{Env: os.Getenv})
	defer c.Close()
	b, err := c.Open(s.URL(prefix))
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		key, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return b.Put(context.Background(), filepath.ToSlash(key), data)
	})
	if err != nil {
		t.Fatal(err)
	}
}
