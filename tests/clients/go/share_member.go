// A member of a share group (KIP-932); see tests/support/members.py. What it read is committed once the broker took its
// word.
package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func shareMember(arguments []string) {
	var refused atomic.Bool
	client, err := kgo.NewClient(
		kgo.SeedBrokers(arguments[0]),
		kgo.ShareGroup(arguments[1]),
		kgo.ConsumeTopics(arguments[2]),
		kgo.ShareMaxRecords(20),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			if err := results.Error(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				refused.Store(true)
			}
		}),
	)
	if err != nil {
		panic(err)
	}
	for !inputEnded.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		fetches := client.PollRecords(ctx, 20)
		cancel()
		records := fetches.Records()
		if len(records) == 0 {
			continue
		}
		var words []string
		for _, r := range records {
			words = append(words, fmt.Sprintf("%d:%s", r.Partition, r.Value))
		}
		say("read", words)
		refused.Store(false)
		client.MarkAcks(kgo.AckAccept, records...)
		if err := client.FlushAcks(context.Background()); err != nil || refused.Load() {
			say("failed", nil)
		} else {
			say("committed", nil)
		}
	}
	client.Close()
}
