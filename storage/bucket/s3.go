package bucket

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// amazon is a bucket in S3, or in what speaks like it.
type amazon struct {
	client      *s3.Client
	bucket      string
	credentials *aws.CredentialsCache // nil for an anonymous reader
}

// openS3 makes a client. Region, profile and credentials come from where AWS's
// own tools look for them, unless the URL names them.
func openS3(ctx context.Context, a *address, o Options) (store, func(), error) {
	load := []func(*config.LoadOptions) error{
		config.WithLogger(logging.Nop{}), // the SDK's way to talk is its errors
		config.WithDefaultRegion("us-east-1"),
	}
	if v := a.query.Get("region"); v != "" {
		load = append(load, config.WithRegion(v))
	}
	if v := a.query.Get("profile"); v != "" {
		load = append(load, config.WithSharedConfigProfile(v))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, nil, err
	}
	transport := standard(o)
	if c, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok {
		transport = tune(c.GetTransport(), o) // with the certificates that AWS_CA_BUNDLE names
	}
	s := &amazon{bucket: a.name}
	if a.is("anonymous") {
		cfg.Credentials = aws.AnonymousCredentials{}
	} else {
		s.credentials = aws.NewCredentialsCache(&rereading{load: load, first: cfg.Credentials}, func(c *aws.CredentialsCacheOptions) {
			c.ExpiryWindow = time.Minute
		})
		cfg.Credentials = s.credentials
	}
	endpoint := a.query.Get("endpoint")
	s.client = s3.NewFromConfig(cfg, func(c *s3.Options) {
		if endpoint != "" {
			c.BaseEndpoint = aws.String(endpoint)
		}
		// Names before a host of one's own seldom resolve.
		c.UsePathStyle = endpoint != "" && a.query.Get("s3ForcePathStyle") != "false" || a.is("s3ForcePathStyle")
		c.HTTPClient = &http.Client{Transport: transport, CheckRedirect: direct}
		c.Retryer = aws.NopRetryer{} // tries are counted in one place, with those of bodies
		// Ranges have no checksums, and stores that speak like S3 mangle the headers.
		c.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		c.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		c.DisableLogOutputChecksumValidationSkipped = true
	})
	return s, transport.CloseIdleConnections, nil
}

// rereading looks for credentials anew each time that the old ones are used up:
// files that others rewrite tell no time at which that will be.
type rereading struct {
	load  []func(*config.LoadOptions) error
	first aws.CredentialsProvider
}

func (r *rereading) Retrieve(ctx context.Context) (aws.Credentials, error) {
	from := r.first
	if r.first = nil; from == nil {
		cfg, err := config.LoadDefaultConfig(ctx, r.load...)
		if err != nil {
			return aws.Credentials{}, &credentialsError{err}
		}
		from = cfg.Credentials
	}
	c, err := from.Retrieve(ctx)
	if err != nil {
		return c, &credentialsError{err}
	}
	return c, nil
}

// credentialsError is the error of not having any.
type credentialsError struct{ cause error }

func (n *credentialsError) Error() string { return n.cause.Error() }

func (n *credentialsError) Unwrap() error { return n.cause }

// renew forgets the credentials that the store takes for expired.
func (s *amazon) renew() {
	if s.credentials != nil {
		s.credentials.Invalidate()
	}
}

func (s *amazon) list(ctx context.Context, prefix, page string) ([]entry, string, error) {
	in := &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: aws.String(prefix)}
	if page != "" {
		in.ContinuationToken = &page
	}
	out, err := s.client.ListObjectsV2(ctx, in)
	if err != nil {
		return nil, "", s.fault(err, "s3:ListBucket")
	}
	all := make([]entry, len(out.Contents))
	for i, c := range out.Contents {
		all[i] = entry{aws.ToString(c.Key), stamp{size: aws.ToInt64(c.Size), tag: aws.ToString(c.ETag)}}
	}
	next := aws.ToString(out.NextContinuationToken)
	if aws.ToBool(out.IsTruncated) && next == "" {
		return nil, "", &fault{text: "the listing is cut short and does not say where it goes on"}
	}
	return all, next, nil
}

func (s *amazon) get(ctx context.Context, key string, of stamp, off, n int64) (*answer, error) {
	in := &s3.GetObjectInput{Bucket: &s.bucket, Key: &key, Range: aws.String(fmt.Sprintf("bytes=%d-%d", off, off+max(n, 1)-1))}
	switch {
	case of.id != "":
		in.VersionId = &of.id
	case of.tag != "":
		in.IfMatch = &of.tag
	}
	out, err := s.client.GetObject(ctx, in)
	if err != nil {
		bad := s.fault(err, "s3:GetObject")
		if n == 0 && bad.status == http.StatusRequestedRangeNotSatisfiable {
			return s.head(ctx, key) // an empty object has no first byte
		}
		return nil, bad
	}
	a := &answer{stamp: stamp{size: aws.ToInt64(out.ContentLength), tag: aws.ToString(out.ETag), id: versionID(out.VersionId)}, body: out.Body}
	if err := a.ranged(aws.ToString(out.ContentRange), off); err != nil {
		_ = out.Body.Close() // nothing of it is wanted
		return nil, err
	}
	if n == 0 {
		_, err = io.Copy(io.Discard, io.LimitReader(out.Body, 2))
		a.body = nil
		return a, errors.Join(err, out.Body.Close())
	}
	return a, nil
}

func (s *amazon) head(ctx context.Context, key string) (*answer, error) {
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: &key})
	if err != nil {
		return nil, s.fault(err, "s3:GetObject") // it was there a moment ago
	}
	return &answer{stamp: stamp{size: aws.ToInt64(out.ContentLength), tag: aws.ToString(out.ETag), id: versionID(out.VersionId)}}, nil
}

// versionID leaves out the one id that does not stay with its bytes: that of
// objects written while versions were not kept.
func versionID(id *string) string {
	if v := aws.ToString(id); v != "null" {
		return v
	}
	return ""
}

// ranged takes the size of the whole object from the header Content-Range, and
// makes sure that the body begins at off.
func (a *answer) ranged(header string, off int64) error {
	if header == "" && off == 0 {
		return nil // the whole object, as some stores send it for a range that covers it
	}
	text, ok := strings.CutPrefix(header, "bytes ")
	span, size, ok2 := strings.Cut(text, "/")
	from, _, ok3 := strings.Cut(span, "-")
	begin, err1 := strconv.ParseInt(from, 10, 64)
	all, err2 := strconv.ParseInt(size, 10, 64)
	if !ok || !ok2 || !ok3 || err1 != nil || err2 != nil || begin != off {
		return &fault{text: fmt.Sprintf("a range from byte %d was asked for, the answer's Content-Range is %q", off, header)}
	}
	a.size = all
	return nil
}

func (s *amazon) change(ctx context.Context, key string, data []byte) error {
	var err error
	verb := "s3:PutObject"
	if data == nil {
		verb = "s3:DeleteObject"
		_, err = s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: &key})
	} else {
		_, err = s.client.PutObject(ctx, &s3.PutObjectInput{Bucket: &s.bucket, Key: &key, Body: bytes.NewReader(data)})
	}
	if err != nil {
		return s.fault(err, verb)
	}
	return nil
}

// expecting finds the region in what stores say of a signature for another one.
var expecting = regexp.MustCompile(`expecting ['"]([a-z0-9-]+)['"]`)

// fault sorts an error of the SDK. action is the permission that it takes.
func (s *amazon) fault(err error, action string) *fault {
	var none *credentialsError
	if errors.As(err, &none) {
		return &fault{final: !passingCredentials(err), cause: err, text: "no credentials: set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, " +
			"add ?profile=, or ?anonymous=true for a public bucket: " + none.Error()}
	}
	var api smithy.APIError
	var code, text string
	if errors.As(err, &api) {
		code, text = api.ErrorCode(), api.ErrorMessage()
	}
	var response *smithyhttp.ResponseError
	if !errors.As(err, &response) || response.Response == nil {
		return &fault{code: code, cause: err}
	}
	status, header := response.HTTPStatusCode(), response.Response.Header
	if status == http.StatusNotFound && (code == "UnknownError" || code == "NotFound") {
		code, text = "", "" // the SDK's own words for a body that was not the store's
	}
	f := answered(status, code, text, header, err, "NoSuchKey", "NoSuchVersion")
	region := header.Get("X-Amz-Bucket-Region")
	if m := expecting.FindStringSubmatch(text); m != nil {
		region = cmp.Or(region, m[1])
	}
	switch {
	case region != "" && (status == http.StatusMovedPermanently || code == "AuthorizationHeaderMalformed" || code == "PermanentRedirect"):
		f.text = fmt.Sprintf("the bucket is in another region: add ?region=%s to its URL", region)
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		f.text = strings.TrimSuffix(text, ".") + fmt.Sprintf("; the gateway's credentials need %s here: look at AWS_PROFILE, AWS_ACCESS_KEY_ID or the instance's role, "+
			"?profile= in the URL, or ?anonymous=true for a public bucket", action)
	case code == "NoSuchBucket":
		f.text = "there is no such bucket: look at its name, at ?endpoint= and ?region="
	}
	return f
}

// passingCredentials tells whether those who give out credentials may have some
// the next time: they were asked over the network.
func passingCredentials(err error) bool {
	var response *smithyhttp.ResponseError
	return errors.As(err, &response) && response.HTTPStatusCode() >= 500
}
