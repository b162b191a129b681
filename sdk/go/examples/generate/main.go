// Command generate streams one answer: go run ./examples/generate PROMPT. TANDEM_URL names the router.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	tandem "tandem.example/sdk/go"
	tandemv1 "tandem.example/sdk/go/tandem/v1"
)

func main() {
	prompt := cmp.Or(strings.Join(os.Args[1:], " "), "In the beginning")
	if err := generate(cmp.Or(os.Getenv("TANDEM_URL"), "http://127.0.0.1:50051"), prompt); err != nil {
		var failure *tandem.Error
		if errors.As(err, &failure) && failure.RetryAfter != nil {
			fmt.Fprintf(os.Stderr, "ask again after %v\n", *failure.RetryAfter)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func generate(url, prompt string) error {
	var options []tandem.Option
	if key := os.Getenv("TANDEM_API_KEY"); key != "" {
		options = append(options, tandem.WithCredential(key))
	}
	client, err := tandem.NewClient(url, options...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	models, err := client.ListModels(ctx)
	if err != nil {
		return err
	}
	generation := client.Generate(ctx, &tandemv1.GenerateRequest{
		Model:    models[0].Name,
		Prompt:   &tandemv1.GenerateRequest_Text{Text: prompt},
		Sampling: &tandemv1.Sampling{MaxTokens: proto.Uint32(64), Temperature: proto.Float32(0.8)},
	})
	for response, err := range generation.Responses() {
		if err != nil {
			return err
		}
		fmt.Print(response.Text)
		if response.Finish != nil {
			fmt.Fprintf(os.Stderr, "\n%d tokens, first after %.3f s\n", response.Usage.CompletionTokens, response.Timing.FirstToken)
		}
	}
	return nil
}
