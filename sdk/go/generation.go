package tandem

import (
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/grpc/codes"

	tandemv1 "tandem.example/sdk/go/tandem/v1"
)

// Generation is one generation under way. It is for one goroutine; only Cancel may be called from others.
type Generation struct {
	client  *Client
	ctx     context.Context
	cancel  context.CancelFunc
	request *tandemv1.GenerateRequest
	calls   calls
	splice  splice
	stream  tandemv1.Inference_GenerateClient
	// What asking failed with; the next Recv says so.
	failed error
	ended  error
}

// RequestID names the request in the router's logs.
func (g *Generation) RequestID() string {
	return g.request.GetRequestId()
}

// Recv waits for the next response. They are numbered without a gap, and the last has a finish; then [io.EOF] comes.
func (g *Generation) Recv() (*tandemv1.GenerateResponse, error) {
	for g.ended == nil {
		response, failure := g.next()
		if failure != nil {
			g.recover(failure)
			continue
		}
		if response.GetFinish() != nil {
			g.end(io.EOF)
		}
		if response != nil {
			return response, nil
		}
	}
	return nil, g.ended
}

// Responses iterates over what comes. Leaving the loop early ends the generation.
func (g *Generation) Responses() iter.Seq2[*tandemv1.GenerateResponse, error] {
	return func(yield func(*tandemv1.GenerateResponse, error) bool) {
		defer g.Cancel()
		for {
			response, err := g.Recv()
			if err == io.EOF || !yield(response, err) || err != nil {
				return
			}
		}
	}
}

// Collect waits for the whole answer.
func (g *Generation) Collect() (*Completion, error) {
	whole := &Completion{}
	for response, err := range g.Responses() {
		if err != nil {
			return nil, err
		}
		whole.add(response)
	}
	return whole, nil
}

// Cancel ends the generation early and frees everything it holds in the cluster; Recv then returns an [Error] with reason Cancelled.
func (g *Generation) Cancel() {
	g.cancel()
}

func (g *Generation) ask() {
	ctx, err := g.client.authorized(g.ctx)
	if err != nil {
		g.end(err)
		return
	}
	g.stream, g.failed = g.client.stub.Generate(ctx, g.request)
}

// next is what is new in the stream's next response, or why there is none.
func (g *Generation) next() (*tandemv1.GenerateResponse, *Error) {
	if g.failed != nil {
		return nil, fromStatus(g.failed)
	}
	response, err := g.stream.Recv()
	if err == io.EOF {
		return nil, &Error{Reason: Malformed, Message: "the stream ended without a finish"}
	}
	if err != nil {
		return nil, fromStatus(err)
	}
	return g.splice.accept(response)
}

// recover asks again, if this failure is not the end.
func (g *Generation) recover(failure *Error) {
	failure.RequestID, failure.Delivered = g.RequestID(), len(g.splice.ids)
	if g.calls.after(g.ctx, failure) {
		g.splice.begin()
		g.ask()
		return
	}
	if errors.Is(g.ctx.Err(), context.Canceled) {
		failure.Reason, failure.Message, failure.Code = Cancelled, "cancelled by the client", codes.Canceled
		failure.RetryAfter = nil
	}
	g.end(failure)
}

func (g *Generation) end(err error) {
	g.ended = err
	g.cancel()
}
