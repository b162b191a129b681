// Command conformance answers the conformance suite's lines with this SDK. See ../../../conformance/README.md.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"os"
	"time"

	"google.golang.org/protobuf/proto"

	tandem "tandem.example/sdk/go"
	tandemv1 "tandem.example/sdk/go/tandem/v1"
)

type line struct {
	URL                string   `json:"url"`
	Call               string   `json:"call"`
	Request            []byte   `json:"request"`
	Timeout            *float64 `json:"timeout"`
	CancelAfter        int      `json:"cancel_after"`
	CancelAfterSeconds *float64 `json:"cancel_after_seconds"`
	Credential         string   `json:"credential"`
	CA                 string   `json:"ca"`
	ServerName         string   `json:"server_name"`
	Retry              struct {
		Calls  int   `json:"calls"`
		Resume *bool `json:"resume"`
	} `json:"retry"`
}

type answer struct {
	Responses  [][]byte    `json:"responses"`
	Models     [][]byte    `json:"models,omitempty"`
	Reasons    []string    `json:"reasons,omitempty"`
	Completion *completion `json:"completion,omitempty"`
	Error      *failure    `json:"error,omitempty"`
	Refused    string      `json:"refused,omitempty"`
	Seconds    float64     `json:"seconds"`
}

type completion struct {
	TokenIDs []uint32 `json:"token_ids"`
	Text     string   `json:"text"`
	Logprobs int      `json:"logprobs"`
	Finish   []byte   `json:"finish"`
}

type failure struct {
	Reason     string   `json:"reason"`
	Code       uint32   `json:"code"`
	Field      string   `json:"field"`
	RetryAfter *float64 `json:"retry_after"`
	Message    string   `json:"message"`
	RequestID  string   `json:"request_id"`
	Delivered  int      `json:"delivered"`
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked line
		if err := json.Unmarshal(text, &asked); err != nil {
			panic(err)
		}
		begin, said := time.Now(), answer{Responses: [][]byte{}}
		if err := asked.run(&said); err != nil {
			said.fail(err)
		}
		said.Seconds = time.Since(begin).Seconds()
		if err := out.Encode(said); err != nil {
			panic(err)
		}
	}
}

func (l line) run(said *answer) error {
	if l.Call == "reasons" {
		said.Reasons = reasons()
		return nil
	}
	client, err := tandem.NewClient(l.URL, l.options()...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if l.Timeout != nil {
		ctx, cancel = context.WithTimeout(ctx, seconds(*l.Timeout))
		defer cancel()
	}
	if l.Call == "list_models" {
		models, err := client.ListModels(ctx)
		for _, model := range models {
			said.Models = append(said.Models, encoded(model))
		}
		return err
	}
	request := &tandemv1.GenerateRequest{}
	if err := proto.Unmarshal(l.Request, request); err != nil {
		return err
	}
	generation := client.Generate(ctx, request)
	defer generation.Cancel()
	if l.Call == "collect" {
		whole, err := generation.Collect()
		if err == nil {
			said.Completion = &completion{whole.TokenIDs, whole.Text, len(whole.Logprobs), encoded(whole.Finish)}
		}
		return err
	}
	if l.CancelAfterSeconds != nil {
		time.AfterFunc(seconds(*l.CancelAfterSeconds), generation.Cancel)
	}
	for response, err := range generation.Responses() {
		if err != nil {
			return err
		}
		said.Responses = append(said.Responses, encoded(response))
		if len(said.Responses) == l.CancelAfter {
			generation.Cancel()
		}
	}
	return nil
}

func (l line) options() []tandem.Option {
	retry := tandem.Retry{Calls: l.Retry.Calls, NoResume: l.Retry.Resume != nil && !*l.Retry.Resume}
	made := []tandem.Option{tandem.WithRetry(retry)}
	if l.Credential != "" {
		made = append(made, tandem.WithCredential(l.Credential))
	}
	if l.CA != "" {
		pem, err := os.ReadFile(l.CA)
		if err != nil {
			panic(err)
		}
		authorities := x509.NewCertPool()
		authorities.AppendCertsFromPEM(pem)
		made = append(made, tandem.WithTLS(&tls.Config{RootCAs: authorities, ServerName: l.ServerName}))
	}
	return made
}

func (a *answer) fail(err error) {
	var found *tandem.Error
	if !errors.As(err, &found) {
		a.Refused = err.Error()
		return
	}
	a.Error = &failure{
		Reason: found.Reason, Code: uint32(found.Code), Field: found.Field, Message: found.Message,
		RequestID: found.RequestID, Delivered: found.Delivered,
	}
	if found.RetryAfter != nil {
		after := found.RetryAfter.Seconds()
		a.Error.RetryAfter = &after
	}
}

func encoded(message proto.Message) []byte {
	bytes, err := proto.Marshal(message)
	if err != nil {
		panic(err)
	}
	return bytes
}

func seconds(value float64) time.Duration {
	return time.Duration(value * float64(time.Second))
}
