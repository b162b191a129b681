package main

import (
	"slices"

	tandem "tandem.example/sdk/go"
)

// reasons are the names that the package has.
func reasons() []string {
	all := []string{
		tandem.InvalidField, tandem.UnknownModel, tandem.ContextLength, tandem.Overloaded, tandem.NoWorker, tandem.NoRoom,
		tandem.StaleIncarnation, tandem.UnknownTicket, tandem.LeaseExpired, tandem.Mismatch, tandem.TransferFailed,
		tandem.WorkerLost, tandem.Draining, tandem.Deadline, tandem.Cancelled, tandem.Internal,
		tandem.Unauthenticated, tandem.Forbidden, tandem.RateLimited,
		tandem.Unreachable, tandem.Diverged, tandem.Malformed,
	}
	slices.Sort(all)
	return all
}
