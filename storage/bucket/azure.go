package bucket

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
)

// azureStore is a container in Azure Blob Storage.
type azureStore struct {
	client *container.Client
}

// openAzure makes a client. The account and its key, signature or connection
// string are named by the environment as Azure's own tools have it; without them
// it is the identity of the machine, or of who is logged in.
func openAzure(a *address, o Options) (store, func(), error) {
	transport := standard(o)
	options := &container.ClientOptions{ClientOptions: policy.ClientOptions{
		Transport: &http.Client{Transport: transport, CheckRedirect: direct},
		Retry:     policy.RetryOptions{MaxRetries: -1}, // tries are counted in one place, with those of bodies
		Telemetry: policy.TelemetryOptions{Disabled: true},
	}}
	c, err := azureClient(a, o.Env, options)
	if err != nil {
		return nil, nil, err
	}
	return &azureStore{c}, transport.CloseIdleConnections, nil
}

func azureClient(a *address, env func(string) string, options *container.ClientOptions) (*container.Client, error) {
	if text := env("AZURE_STORAGE_CONNECTION_STRING"); text != "" && !a.query.Has("account") && !a.query.Has("endpoint") {
		return container.NewClientFromConnectionString(text, a.name, options)
	}
	account := cmp.Or(a.query.Get("account"), env("AZURE_STORAGE_ACCOUNT"))
	at := strings.TrimSuffix(a.query.Get("endpoint"), "/")
	if at == "" {
		if account == "" {
			return nil, errors.New("no storage account: add ?account=NAME, or set AZURE_STORAGE_ACCOUNT or AZURE_STORAGE_CONNECTION_STRING")
		}
		at = "https://" + account + ".blob.core.windows.net"
	}
	at += "/" + a.name
	if account == "" {
		account = accountIn(a.query.Get("endpoint"))
	}
	key, signature := env("AZURE_STORAGE_KEY"), env("AZURE_STORAGE_SAS_TOKEN")
	switch {
	case a.is("anonymous"):
		return container.NewClientWithNoCredential(at, options)
	case key != "":
		shared, err := container.NewSharedKeyCredential(account, key)
		if err != nil {
			return nil, errors.New("AZURE_STORAGE_KEY is no base64 text")
		}
		return container.NewClientWithSharedKeyCredential(at, shared, options)
	case signature != "":
		return container.NewClientWithNoCredential(at+"?"+strings.TrimPrefix(signature, "?"), options)
	}
	who, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, err
	}
	return container.NewClient(at, who, options)
}

// accountIn is the account that an endpoint names: with its host, as Azure's own
// do, or with its path; "" for none.
func accountIn(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	if name, rest, ok := strings.Cut(u.Host, "."); ok && strings.HasPrefix(rest, "blob.") {
		return name
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	return name
}

func (s *azureStore) list(ctx context.Context, prefix, page string) ([]entry, string, error) {
	o := &container.ListBlobsFlatOptions{Prefix: &prefix, MaxResults: to.Ptr(int32(1000))}
	if page != "" {
		o.Marker = &page
	}
	out, err := s.client.NewListBlobsFlatPager(o).NextPage(ctx)
	if err != nil {
		return nil, "", azureFault(err)
	}
	if out.Segment == nil {
		return nil, "", &fault{text: "the listing has no list"}
	}
	all := make([]entry, 0, len(out.Segment.BlobItems))
	for _, b := range out.Segment.BlobItems {
		if b.Name == nil || b.Properties == nil || b.Properties.ContentLength == nil {
			return nil, "", &fault{text: "the listing has a blob without name or size"}
		}
		all = append(all, entry{*b.Name, stamp{size: *b.Properties.ContentLength, tag: azureTag(b.Properties.ETag)}})
	}
	next := ""
	if out.NextMarker != nil {
		next = *out.NextMarker
	}
	return all, next, nil
}

// azureTag takes the quotes off an ETag: listings have none, answers have them.
func azureTag(t *azcore.ETag) string {
	if t == nil {
		return ""
	}
	return strings.Trim(string(*t), `"`)
}

func (s *azureStore) get(ctx context.Context, key string, of stamp, off, n int64) (*answer, error) {
	c := s.client.NewBlobClient(key)
	if n == 0 {
		out, err := c.GetProperties(ctx, nil)
		if err != nil {
			return nil, azureFault(err)
		}
		if out.ContentLength == nil {
			return nil, &fault{text: "the answer does not say how long the blob is"}
		}
		return &answer{stamp: stamp{size: *out.ContentLength, tag: azureTag(out.ETag), id: deref(out.VersionID)}}, nil
	}
	o := &blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: off, Count: n}}
	if of.id != "" {
		versioned, err := c.WithVersionID(of.id)
		if err != nil {
			return nil, &fault{final: true, cause: err}
		}
		c = versioned
	} else {
		tag := azcore.ETag(`"` + of.tag + `"`)
		o.AccessConditions = &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &tag}}
	}
	out, err := c.DownloadStream(ctx, o)
	if err != nil {
		return nil, azureFault(err)
	}
	a := &answer{stamp: stamp{tag: azureTag(out.ETag), id: deref(out.VersionID)}, body: out.Body}
	if out.ContentLength != nil {
		a.size = *out.ContentLength
	}
	if err := a.ranged(deref(out.ContentRange), off); err != nil {
		_ = out.Body.Close() // nothing of it is wanted
		return nil, err
	}
	return a, nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (s *azureStore) change(ctx context.Context, key string, data []byte) error {
	var err error
	if data == nil {
		_, err = s.client.NewBlobClient(key).Delete(ctx, nil)
	} else {
		body := streaming.NopCloser(strings.NewReader(string(data)))
		_, err = s.client.NewBlockBlobClient(key).Upload(ctx, body, &blockblob.UploadOptions{})
	}
	if err != nil {
		return azureFault(err)
	}
	return nil
}

// azureFault sorts an error of the SDK.
func azureFault(err error) error {
	var response *azcore.ResponseError
	if !errors.As(err, &response) || response.RawResponse == nil {
		var refused *azidentity.AuthenticationFailedError
		said := func(text string) bool { return strings.Contains(err.Error(), text) }
		if errors.As(err, &refused) || said("DefaultAzureCredential") || said("non-TLS protected") {
			return &fault{final: true, cause: err, text: "no credentials: set AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, " +
				"log in with az login, or add ?anonymous=true for a public container: " + firstLine(err.Error())}
		}
		return err
	}
	status, code := response.StatusCode, response.ErrorCode
	f := answered(status, code, "", response.RawResponse.Header, nil, "BlobNotFound")
	switch {
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		f.text = "the gateway needs the role Storage Blob Data Reader here: look at AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or the identity, " +
			"or add ?anonymous=true for a public container"
	case code == "ContainerNotFound":
		f.text = "there is no such container: look at its name, and at ?account="
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.RawResponse.Body, 1<<20)) // so that the connection can be used again
	return f
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
