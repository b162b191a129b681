package tandem

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	tandemv1 "tandem.example/sdk/go/tandem/v1"
)

// splice makes one stream, which delivers every token once, of several answers to one request.
//
// It knows what was delivered. A further answer has to begin with exactly those tokens and that text, which are left out; then all
// that is delivered is what that answer says.
type splice struct {
	ids      []uint32
	text     []byte
	sequence uint64

	expected uint64
	idsSeen  int
	textSeen int
}

// begin: a new answer begins.
func (s *splice) begin() {
	s.expected, s.idsSeen, s.textSeen = 0, 0, 0
}

// accept returns what is new in the answer's next response; nil if nothing is.
func (s *splice) accept(response *tandemv1.GenerateResponse) (*tandemv1.GenerateResponse, *Error) {
	if response.GetSequence() != s.expected {
		message := fmt.Sprintf("response %d of the stream is missing; %d came", s.expected, response.GetSequence())
		return nil, &Error{Reason: Malformed, Message: message}
	}
	s.expected++
	ids, text := response.GetTokenIds(), response.GetText()
	oldIDs := overlap(s.ids, s.idsSeen, len(ids))
	oldText := overlap(s.text, s.textSeen, len(text))
	s.idsSeen += len(ids)
	s.textSeen += len(text)
	same := slices.Equal(ids[:len(oldIDs)], oldIDs) && strings.HasPrefix(text, string(oldText))
	whole := s.idsSeen >= len(s.ids) && s.textSeen >= len(s.text)
	if !same || (response.GetFinish() != nil && !whole) {
		return nil, &Error{Reason: Diverged, Message: "the answer to the same request does not begin with what was delivered"}
	}
	fresh := proto.CloneOf(response)
	fresh.TokenIds = fresh.TokenIds[len(oldIDs):]
	fresh.Logprobs = fresh.Logprobs[min(len(oldIDs), len(fresh.Logprobs)):]
	fresh.Text = text[len(oldText):]
	if len(fresh.TokenIds) == 0 && fresh.Text == "" && fresh.Finish == nil {
		return nil, nil
	}
	fresh.Sequence = s.sequence
	s.sequence++
	s.ids = append(s.ids, fresh.TokenIds...)
	s.text = append(s.text, fresh.Text...)
	return fresh, nil
}

// overlap is the part of the delivered that the next length items, from seen on, repeat.
func overlap[T any](delivered []T, seen, length int) []T {
	from := min(seen, len(delivered))
	return delivered[from:min(from+length, len(delivered))]
}
