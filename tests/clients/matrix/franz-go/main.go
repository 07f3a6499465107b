// franz-go through the matrix; see ../README.md.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const t0 = 1_700_000_000_000

var (
	bootstrap, topic, layout = os.Args[1], os.Args[2], os.Args[3]
	group                    = topic + "-group"
	produced                 = map[string]string{}
	member                   *kgo.Client
	admin                    *kadm.Client
)

func client(options ...kgo.Opt) *kgo.Client {
	always := []kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner())}
	made, err := kgo.NewClient(append(always, options...)...)
	must(err)
	return made
}

func soon() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	context.AfterFunc(ctx, cancel)
	return ctx
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func check(right bool, found any) {
	if !right {
		panic(fmt.Errorf("found %v", found))
	}
}

func record(partition int32, key, value []byte, timestamp int64, headers ...kgo.RecordHeader) *kgo.Record {
	when := time.UnixMilli(timestamp)
	return &kgo.Record{Topic: topic, Partition: partition, Key: key, Value: value, Timestamp: when, Headers: headers}
}

func told(r *kgo.Record) string {
	return fmt.Sprintf("%d %v %v %d %q", r.Partition, r.Value == nil, string(r.Value), r.Timestamp.UnixMilli(), r.Headers)
}

func send(records []*kgo.Record, options ...kgo.Opt) {
	to := client(options...)
	defer to.Close()
	must(to.ProduceSync(soon(), records...).FirstErr())
	for _, r := range records {
		if r.Topic == topic {
			produced[string(r.Key)] = told(r)
		}
	}
}

func poll(of *kgo.Client, count int) (found []*kgo.Record) {
	ctx := soon()
	for len(found) < count && ctx.Err() == nil {
		fetches := of.PollFetches(ctx)
		fetches.EachError(func(_ string, _ int32, err error) { must(err) })
		found = append(found, fetches.Records()...)
	}
	return found
}

func reader(topic string, offset kgo.Offset, options ...kgo.Opt) *kgo.Client {
	from := map[string]map[int32]kgo.Offset{topic: {0: offset}}
	return client(append(options, kgo.ConsumePartitions(from))...)
}

func createTopic() {
	forever := "-1"
	configs := map[string]*string{"retention.ms": &forever}
	if layout != "-" {
		configs["storage.layout"] = &layout
	}
	made, err := admin.CreateTopics(soon(), 1, 1, configs, topic+".short", topic+".gone", topic+".tx")
	must(err)
	must(made.Error())
	_, err = admin.CreateTopic(soon(), 2, 1, configs, topic)
	must(err)
	topics, err := admin.ListTopics(soon(), topic)
	must(err)
	check(len(topics[topic].Partitions) == 2, topics)
}

func produce(index int, name string, codec kgo.CompressionCodec) func() {
	return func() {
		var records []*kgo.Record
		for n := range 10 {
			key := fmt.Sprintf("%s-%d", name, n)
			value := "value of " + key + " " + strings.Repeat("x", 100)
			records = append(records, record(int32(n%2), []byte(key), []byte(value), int64(t0+1000*index+n)))
		}
		send(records, kgo.ProducerBatchCompression(codec), kgo.DisableIdempotentWrite())
	}
}

func nulls() {
	send([]*kgo.Record{record(0, nil, []byte("no key"), t0+5000), record(0, []byte("tombstone"), nil, t0+5001)})
}

func headers() {
	text := kgo.RecordHeader{Key: "text", Value: []byte("plain")}
	bytes := kgo.RecordHeader{Key: "bytes", Value: []byte{0, 0xff}}
	send([]*kgo.Record{record(0, []byte("headers"), []byte("headers"), t0+5002, text, bytes)})
}

func idempotent() {
	var records []*kgo.Record
	for n := range 5 {
		name := []byte(fmt.Sprintf("idempotent-%d", n))
		records = append(records, record(1, name, name, int64(t0+6000+n)))
	}
	send(records)
}

func consumeInGroup() {
	member = client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	found := map[string]string{}
	for _, r := range poll(member, len(produced)) {
		found[string(r.Key)] = told(r)
	}
	check(reflect.DeepEqual(found, produced), fmt.Sprint(len(found), " records, or other ones"))
}

func commit() {
	must(member.CommitUncommittedOffsets(soon()))
	expected := member.CommittedOffsets()[topic]
	member.Close()
	committed, err := admin.FetchOffsets(soon(), group)
	must(err)
	ends, err := admin.ListEndOffsets(soon(), topic)
	must(err)
	for partition, offset := range expected {
		found, _ := committed.Lookup(topic, partition)
		end, _ := ends.Lookup(topic, partition)
		check(found.At == offset.Offset && found.At == end.Offset, committed)
	}
}

func lags() [2]int64 {
	all, err := admin.Lag(soon(), group)
	must(err)
	must(all.Error())
	lag := all[group].Lag[topic]
	return [2]int64{lag[0].Lag, lag[1].Lag}
}

func lag() {
	before := lags()
	check(before == [2]int64{}, before)
	send([]*kgo.Record{record(0, []byte("late"), []byte("late"), t0+7000)})
	after := lags()
	check(after[0] > 0 && after[1] == 0, after)
}

func seek() {
	of := reader(topic, kgo.NewOffset().AfterMilli(t0+2000))
	defer of.Close()
	key := string(poll(of, 1)[0].Key)
	check(key == "snappy-0", key)
}

func listGroups() {
	groups, err := admin.ListGroups(soon())
	must(err)
	_, there := groups[group]
	check(there, groups)
}

func alterConfig() {
	size := "123456"
	_, err := admin.AlterTopicConfigs(soon(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &size}}, topic)
	must(err)
	described, err := admin.DescribeTopicConfigs(soon(), topic)
	must(err)
	for _, config := range described[0].Configs {
		check(config.Key != "max.message.bytes" || *config.Value == size, config)
	}
}

func deleteRecords() {
	var records []*kgo.Record
	for n := range 10 {
		r := record(0, []byte(fmt.Sprintf("short-%d", n)), []byte{}, int64(t0+n))
		r.Topic = topic + ".short"
		records = append(records, r)
	}
	send(records)
	border := records[5].Offset
	deleted, err := admin.DeleteRecords(soon(), kadm.Offsets{topic + ".short": {0: {Topic: topic + ".short", At: border}}})
	must(err)
	must(deleted.Error())
	starts, err := admin.ListStartOffsets(soon(), topic+".short")
	must(err)
	start, _ := starts.Lookup(topic+".short", 0)
	check(start.Offset == border, start)
}

func deleteTopic() {
	deleted, err := admin.DeleteTopics(soon(), topic+".gone")
	must(err)
	must(deleted.Error())
	topics, err := admin.ListTopics(soon())
	must(err)
	check(!topics.Has(topic+".gone"), topics.Names())
}

func transaction() {
	to := client(kgo.TransactionalID(topic))
	defer to.Close()
	for _, name := range []string{"aborted", "committed"} {
		must(to.BeginTransaction())
		for n := range 3 {
			r := record(0, []byte(fmt.Sprintf("%s-%d", name, n)), []byte{}, int64(t0+n))
			r.Topic = topic + ".tx"
			must(to.ProduceSync(soon(), r).FirstErr())
		}
		must(to.EndTransaction(soon(), name == "committed"))
	}
	of := reader(topic+".tx", kgo.NewOffset().AtStart(), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer of.Close()
	var keys []string
	for _, r := range poll(of, 3) {
		keys = append(keys, string(r.Key))
	}
	check(reflect.DeepEqual(keys, []string{"committed-0", "committed-1", "committed-2"}), keys)
}

func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return strings.TrimPrefix(dependency.Version, "v")
		}
	}
	return "?"
}

func run(name string, feature func()) {
	said := map[string]any{"feature": name, "ok": true}
	defer func() {
		if err := recover(); err != nil {
			said["ok"], said["why"] = false, fmt.Sprint(err)
		}
		json.NewEncoder(os.Stdout).Encode(said)
	}()
	feature()
}

func main() {
	admin = kadm.NewClient(client())
	json.NewEncoder(os.Stdout).Encode(map[string]string{"version": version("github.com/twmb/franz-go")})
	run("create topic", createTopic)
	run("produce none", produce(0, "none", kgo.NoCompression()))
	run("produce gzip", produce(1, "gzip", kgo.GzipCompression()))
	run("produce snappy", produce(2, "snappy", kgo.SnappyCompression()))
	run("produce lz4", produce(3, "lz4", kgo.Lz4Compression()))
	run("produce zstd", produce(4, "zstd", kgo.ZstdCompression()))
	run("null key and value", nulls)
	run("headers", headers)
	run("idempotent producer", idempotent)
	run("consume in a group", consumeInGroup)
	run("commit", commit)
	run("lag", lag)
	run("seek by timestamp", seek)
	run("list groups", listGroups)
	run("alter config", alterConfig)
	run("delete records", deleteRecords)
	run("delete topic", deleteTopic)
	run("transaction", transaction)
}
