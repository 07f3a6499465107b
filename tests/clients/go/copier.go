// A member of a group that copies records in transactions; see tests/clients/test_copiers.py.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const atATime = 20

func copier(arguments []string) {
	target := arguments[3]
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(arguments[0]),
		kgo.ConsumerGroup(arguments[1]),
		kgo.ConsumeTopics(arguments[2]),
		kgo.TransactionalID(arguments[4]),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(300*time.Millisecond),
	)
	if err != nil {
		panic(err)
	}
	for !inputEnded.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		fetches := session.PollRecords(ctx, atATime)
		cancel()
		if fetches.NumRecords() == 0 {
			continue
		}
		copyOnce(session, fetches, target)
	}
	session.Close()
}

// One transaction, drawn out, so that rebalances come in the middle of some.
func copyOnce(session *kgo.GroupTransactSession, fetches kgo.Fetches, target string) {
	ctx := context.Background()
	if err := session.Begin(); err != nil {
		panic(err)
	}
	fetches.EachRecord(func(r *kgo.Record) {
		session.Produce(ctx, &kgo.Record{Topic: target, Partition: r.Partition, Value: r.Value}, nil)
	})
	time.Sleep(100 * time.Millisecond)
	committed, err := session.End(ctx, kgo.TryCommit)
	switch {
	case committed:
		say("copied", []string{fmt.Sprint(fetches.NumRecords())})
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	default:
		say("aborted", nil)
	}
}
