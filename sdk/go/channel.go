package tandem

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const version = "0.1.0"

// MessageLimit is the largest message sent or received, in bytes, as at the router: a prompt of a million tokens fits.
const MessageLimit = 64 << 20

// address is what a URL says: http://host:port is plain text, https://host:port is TLS, host:port is the former.
type address struct {
	host, port string
	tls        bool
}

func parseAddress(text string) (address, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	parts, err := url.Parse(text)
	if err != nil || parts.Hostname() == "" || (parts.Scheme != "http" && parts.Scheme != "https") || strings.Trim(parts.Path, "/") != "" {
		return address{}, fmt.Errorf("url must be http://host:port or https://host:port, not %q", text)
	}
	found := address{host: parts.Hostname(), port: parts.Port(), tls: parts.Scheme == "https"}
	if found.port == "" {
		found.port = map[bool]string{false: "80", true: "443"}[found.tls]
	}
	return found, nil
}

func (a address) target() string {
	return "dns:///" + net.JoinHostPort(a.host, a.port)
}

func (a address) loopback() bool {
	ip := net.ParseIP(a.host)
	return a.host == "localhost" || (ip != nil && ip.IsLoopback())
}

// dialOptions are what a channel to a router needs.
func dialOptions(to address, config *tls.Config) ([]grpc.DialOption, error) {
	transport := insecure.NewCredentials()
	switch {
	case to.tls && config != nil:
		transport = credentials.NewTLS(config)
	case to.tls:
		transport = credentials.NewTLS(&tls.Config{})
	case config != nil:
		return nil, errors.New("TLS needs an https url")
	}
	return []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(MessageLimit), grpc.MaxCallRecvMsgSize(MessageLimit)),
		// A request may wait long for its first token: only pings tell a slow router from a dead connection.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		// Routers are replicas behind one name; one long connection would leave all but one idle.
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
		// What may be asked again is decided here, by the errors' own advice.
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithUserAgent("tandem-sdk-go/" + version),
	}, nil
}
