// A group member; see tests/support/members.py.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	// The broker's assignors (KIP-848); franz-go goes by its own type of the name.
	"remote-range":   kgo.RangeBalancer(),
	"remote-uniform": kgo.StickyBalancer(),
}

var (
	topic       string
	uncommitted bool
)

func say(verb string, words []string) {
	fmt.Println(strings.Join(append([]string{verb}, words...), " "))
}

func report(verb string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(ctx context.Context, client *kgo.Client, changed map[string][]int32) {
		if verb == "revoked" {
			commit(ctx, client)
		}
		var words []string
		for _, partition := range changed[topic] {
			words = append(words, fmt.Sprint(partition))
		}
		say(verb, words)
	}
}

// In a rebalance that goes on while a cooperative member reads, the commit is tried again behind the next poll.
func commit(ctx context.Context, client *kgo.Client) {
	if !uncommitted {
		return
	}
	err := client.CommitUncommittedOffsets(ctx)
	if errors.Is(err, kerr.RebalanceInProgress) || errors.Is(err, kerr.IllegalGeneration) ||
		errors.Is(err, kerr.StaleMemberEpoch) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	uncommitted = false
	say("committed", nil)
}

func member(arguments []string) {
	topic = arguments[2]
	options := []kgo.Opt{}
	if strings.HasPrefix(arguments[3], "remote-") {
		options = append(options, kgo.ServerSideBalancer())
	}
	client, err := kgo.NewClient(append(options,
		kgo.SeedBrokers(arguments[0]),
		kgo.ConsumerGroup(arguments[1]),
		kgo.ConsumeTopics(topic),
		kgo.Balancers(balancers[arguments[3]]),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(), // between a poll and its commit no partition goes
		kgo.OnPartitionsAssigned(report("assigned")),
		kgo.OnPartitionsRevoked(report("revoked")),
		kgo.OnPartitionsLost(report("lost")),
	)...)
	if err != nil {
		panic(err)
	}
	for !inputEnded.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		fetches := client.PollFetches(ctx)
		cancel()
		var words []string
		fetches.EachRecord(func(r *kgo.Record) {
			words = append(words, fmt.Sprintf("%d:%s", r.Partition, r.Value))
		})
		if len(words) > 0 {
			say("read", words)
			uncommitted = true
		}
		commit(context.Background(), client)
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
}
