// A producer in the middle of a transaction; see tests/clients/test_zombie.py.
package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const flushedFirst = 100

func sender(arguments []string) {
	id, topic := arguments[1], arguments[2]
	partitions, err := strconv.Atoi(arguments[3])
	if err != nil {
		panic(err)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(arguments[0]),
		kgo.TransactionalID(id),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
	)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	if err := client.BeginTransaction(); err != nil {
		panic(err)
	}
	err = send(ctx, client, id, topic, partitions)
	if err == nil {
		err = client.EndTransaction(ctx, kgo.TryCommit)
	}
	switch {
	case err == nil:
		say("committed", nil)
	// A client of older versions is told InvalidProducerEpoch (KIP-588).
	case errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerEpoch):
		say("fenced", nil)
	default:
		say(err.Error(), nil)
	}
	client.Close()
}

// The first error of a record, if any.
func send(ctx context.Context, client *kgo.Client, id, topic string, partitions int) error {
	var failure atomic.Value
	for count := 0; !inputEnded.Load(); count++ {
		record := &kgo.Record{
			Topic: topic, Partition: int32(count % partitions), Value: []byte(fmt.Sprintf("%s %d", id, count)),
		}
		client.Produce(ctx, record, func(_ *kgo.Record, err error) {
			if err != nil {
				failure.CompareAndSwap(nil, err)
			}
		})
		if count == flushedFirst {
			if err := client.Flush(ctx); err != nil {
				return err
			}
			say("open", nil)
		}
		time.Sleep(2 * time.Millisecond)
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	err, _ := failure.Load().(error)
	return err
}
