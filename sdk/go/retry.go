package tandem

import (
	"context"
	"math/rand/v2"
	"time"
)

// Retry bounds asking again. What may be asked again at all is no choice: see [Error.Again]. Zero fields take their default.
type Retry struct {
	// Calls is how many calls a request makes at most; 1 never asks again. Default: 5.
	Calls int
	// InitialBackoff is the time before the second call; it doubles with each further one. An error's RetryAfter is waited for at
	// least. Default: 100 ms.
	InitialBackoff time.Duration
	// MaxBackoff is the longest backoff. Default: 5 s.
	MaxBackoff time.Duration
	// NoResume: do not ask again after tokens were delivered. Otherwise the rest of an answer that begins with them is delivered.
	NoResume bool
}

func (r Retry) orDefaults() Retry {
	if r.Calls == 0 {
		r.Calls = 5
	}
	if r.InitialBackoff == 0 {
		r.InitialBackoff = 100 * time.Millisecond
	}
	if r.MaxBackoff == 0 {
		r.MaxBackoff = 5 * time.Second
	}
	return r
}

// calls are the calls of one request, under one context.
type calls struct {
	retry Retry
	made  int
}

// after waits until the next call may be made; false if this error is the end.
func (a *calls) after(ctx context.Context, failure *Error) bool {
	if !failure.Again() || a.made+1 >= a.retry.Calls || (failure.Delivered > 0 && a.retry.NoResume) {
		return false
	}
	delay := min(a.retry.MaxBackoff, a.retry.InitialBackoff<<min(a.made, 30))
	if failure.RetryAfter != nil {
		delay = max(delay, *failure.RetryAfter)
	}
	// Clients that failed together don't come back together.
	delay += time.Duration(rand.Float64() * 0.5 * float64(delay))
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= delay {
		return false
	}
	select {
	case <-time.After(delay):
		a.made++
		return true
	case <-ctx.Done():
		return false
	}
}
