package tandem

import (
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const domain = "tandem"

// Error says that a call failed. It is the only error that calls return; find it with [errors.As].
type Error struct {
	// Reason is one of this package's constants, or a newer router's.
	Reason  string
	Message string
	Code    codes.Code
	// Field of the request that is to blame, by its path, such as sampling.top_p; may be empty.
	Field string
	// RetryAfter is the time after which asking again can help; nil if it can't.
	RetryAfter *time.Duration
	// RequestID names the request in the router's logs.
	RequestID string
	// Delivered counts the tokens that were delivered before.
	Delivered int
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s", e.Reason, e.Message)
}

// Again says whether the same request may be asked again.
func (e *Error) Again() bool {
	return e.RetryAfter != nil || e.Reason == Unreachable
}

// fromStatus reads the status that a call ended with.
func fromStatus(cause error) *Error {
	ended := status.Convert(cause)
	failure := &Error{Reason: byCode(ended.Code()), Message: ended.Message(), Code: ended.Code()}
	var info *errdetails.ErrorInfo
	var retry *errdetails.RetryInfo
	for _, detail := range ended.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			info = detail
		case *errdetails.RetryInfo:
			retry = detail
		}
	}
	if info.GetDomain() != domain {
		return failure
	}
	failure.Reason, failure.Field = info.GetReason(), info.GetMetadata()["field"]
	if retry != nil {
		after := retry.GetRetryDelay().AsDuration()
		failure.RetryAfter = &after
	}
	return failure
}

// byCode is the reason of a status without one of ours: it comes from a library or a proxy on the way, never from a router.
func byCode(code codes.Code) string {
	switch code {
	case codes.Unavailable, codes.Unknown, codes.Internal:
		return Unreachable
	case codes.DeadlineExceeded:
		return Deadline
	case codes.Canceled:
		return Cancelled
	default:
		return codeNames[code]
	}
}

// As gRPC writes its codes in every language but this one.
var codeNames = map[codes.Code]string{
	codes.OK:                 "OK",
	codes.InvalidArgument:    "INVALID_ARGUMENT",
	codes.NotFound:           "NOT_FOUND",
	codes.AlreadyExists:      "ALREADY_EXISTS",
	codes.PermissionDenied:   "PERMISSION_DENIED",
	codes.ResourceExhausted:  "RESOURCE_EXHAUSTED",
	codes.FailedPrecondition: "FAILED_PRECONDITION",
	codes.Aborted:            "ABORTED",
	codes.OutOfRange:         "OUT_OF_RANGE",
	codes.Unimplemented:      "UNIMPLEMENTED",
	codes.DataLoss:           "DATA_LOSS",
	codes.Unauthenticated:    "UNAUTHENTICATED",
}
