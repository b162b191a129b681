// Package tandem is a client of Tandem's inference service: streaming, typed errors, safe retries, exact resumption.
//
// Requests and responses are the contract's own messages, in package tandemv1.
package tandem

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	tandemv1 "tandem.example/sdk/go/tandem/v1"
)

// Client asks routers. It is safe to share between goroutines, and holds connections until it is closed.
type Client struct {
	connection *grpc.ClientConn
	stub       tandemv1.InferenceClient
	options    options
}

type options struct {
	credential          func(context.Context) (string, error)
	plaintextCredential bool
	tls                 *tls.Config
	retry               Retry
}

// Option of a [Client].
type Option func(*options)

// WithCredential sends an API key or a token as authorization: Bearer.
func WithCredential(credential string) Option {
	return WithCredentialFunc(func(context.Context) (string, error) { return credential, nil })
}

// WithCredentialFunc asks for a fresh token before each call.
func WithCredentialFunc(credential func(context.Context) (string, error)) Option {
	return func(o *options) { o.credential = credential }
}

// WithPlaintextCredential lets a credential leave the machine in plain text, on a network that is trusted.
func WithPlaintextCredential() Option {
	return func(o *options) { o.plaintextCredential = true }
}

// WithTLS names authorities and certificates. Without it: the system's authorities, and no certificate of one's own.
func WithTLS(config *tls.Config) Option {
	return func(o *options) { o.tls = config }
}

// WithRetry bounds asking again.
func WithRetry(retry Retry) Option {
	return func(o *options) { o.retry = retry }
}

// NewClient of the router, or the routers, at http://host:port (plain text) or https://host:port (TLS).
func NewClient(url string, opts ...Option) (*Client, error) {
	var chosen options
	for _, option := range opts {
		option(&chosen)
	}
	chosen.retry = chosen.retry.orDefaults()
	to, err := parseAddress(url)
	if err != nil {
		return nil, err
	}
	if chosen.credential != nil && !to.tls && !to.loopback() && !chosen.plaintextCredential {
		return nil, errors.New("credential needs an https url, or WithPlaintextCredential on a network that is trusted")
	}
	dial, err := dialOptions(to, chosen.tls)
	if err != nil {
		return nil, err
	}
	connection, err := grpc.NewClient(to.target(), dial...)
	if err != nil {
		return nil, err
	}
	return &Client{connection: connection, stub: tandemv1.NewInferenceClient(connection), options: chosen}, nil
}

// Generate starts one generation. The deadline of ctx is for all of it, calls asked again included; its end ends the generation, and
// frees everything it holds in the cluster.
func (c *Client) Generate(ctx context.Context, request *tandemv1.GenerateRequest) *Generation {
	request = determined(request)
	ctx, cancel := context.WithCancel(ctx)
	generation := &Generation{client: c, ctx: ctx, cancel: cancel, request: request, calls: calls{retry: c.options.retry}}
	generation.ask()
	return generation
}

// ListModels says which models can be asked for.
func (c *Client) ListModels(ctx context.Context) ([]*tandemv1.Model, error) {
	tries := calls{retry: c.options.retry}
	for {
		call, err := c.authorized(ctx)
		if err != nil {
			return nil, err
		}
		answer, err := c.stub.ListModels(call, &tandemv1.ListModelsRequest{})
		if err == nil {
			return answer.GetModels(), nil
		}
		failure := fromStatus(err)
		if !tries.after(ctx, failure) {
			return nil, failure
		}
	}
}

// Close ends all calls and connections.
func (c *Client) Close() error {
	return c.connection.Close()
}

func (c *Client) authorized(ctx context.Context) (context.Context, error) {
	if c.options.credential == nil {
		return ctx, nil
	}
	token, err := c.options.credential(ctx)
	if err != nil {
		return nil, err
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token), nil
}

// determined is a copy with a request id and a seed: asked again, it is the same request, and draws the same tokens.
func determined(request *tandemv1.GenerateRequest) *tandemv1.GenerateRequest {
	whole := proto.CloneOf(request)
	var random [24]byte
	_, _ = rand.Read(random[:])
	if whole.RequestId == "" {
		whole.RequestId = hex.EncodeToString(random[:16])
	}
	if whole.Sampling == nil {
		whole.Sampling = &tandemv1.Sampling{}
	}
	if whole.Sampling.Seed == nil {
		whole.Sampling.Seed = proto.Uint64(binary.NativeEndian.Uint64(random[16:]))
	}
	return whole
}
