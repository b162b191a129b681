package tandem

import tandemv1 "tandem.example/sdk/go/tandem/v1"

// Completion is what a generation delivered, put together.
type Completion struct {
	RequestID string
	TokenIDs  []uint32
	Text      string
	// Logprobs has one entry a token when asked for.
	Logprobs []*tandemv1.Logprobs
	Finish   *tandemv1.Finish
	Usage    *tandemv1.Usage
	Timing   *tandemv1.Timing
}

func (c *Completion) add(response *tandemv1.GenerateResponse) {
	c.RequestID = response.GetRequestId()
	c.TokenIDs = append(c.TokenIDs, response.GetTokenIds()...)
	c.Text += response.GetText()
	c.Logprobs = append(c.Logprobs, response.GetLogprobs()...)
	if response.GetFinish() != nil {
		c.Finish, c.Usage, c.Timing = response.GetFinish(), response.GetUsage(), response.GetTiming()
	}
}
