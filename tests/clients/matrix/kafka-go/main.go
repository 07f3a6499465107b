// kafka-go through the matrix; see ../README.md.
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

	"github.com/segmentio/kafka-go"
)

const t0 = 1_700_000_000_000

var (
	bootstrap, topic, layout = os.Args[1], os.Args[2], os.Args[3]
	group                    = topic + "-group"
	produced                 = map[string]string{}
	client                   = &kafka.Client{Addr: kafka.TCP(bootstrap), Timeout: 30 * time.Second}
	member                   *kafka.Reader
	read                     = map[int]kafka.Message{} // partition -> the last record that the group was given
)

// none is why the client has nothing for a feature.
type none string

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

func told(m kafka.Message) string {
	return fmt.Sprintf("%d %v %s %d %q", m.Partition, m.Value == nil, m.Value, m.Time.UnixMilli(), m.Headers)
}

func record(partition int, key, value []byte, timestamp int64, headers ...kafka.Header) kafka.Message {
	return kafka.Message{Partition: partition, Key: key, Value: value, Time: time.UnixMilli(timestamp), Headers: headers}
}

// send writes to one topic; the balancer gives each message the partition that it names.
func send(to string, codec kafka.Compression, messages ...kafka.Message) {
	writer := &kafka.Writer{
		Addr: client.Addr, Topic: to, RequiredAcks: kafka.RequireAll, Compression: codec, BatchTimeout: 5 * time.Millisecond,
		Balancer: kafka.BalancerFunc(func(m kafka.Message, _ ...int) int { return m.WriterData.(int) }),
	}
	defer writer.Close()
	for i := range messages {
		messages[i].WriterData = messages[i].Partition
		if to == topic {
			produced[string(messages[i].Key)] = told(messages[i])
		}
	}
	must(writer.WriteMessages(soon(), messages...))
}

func createTopic() {
	configs := []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "-1"}}
	if layout != "-" {
		configs = append(configs, kafka.ConfigEntry{ConfigName: "storage.layout", ConfigValue: layout})
	}
	var wanted []kafka.ConfigKey
	for name, partitions := range map[string]int{topic: 2, topic + ".short": 1, topic + ".gone": 1, topic + ".tx": 1} {
		wanted = append(wanted, kafka.ConfigKey{Topic: name, NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: configs})
	}
	answer, err := client.CreateTopics(soon(), &kafka.CreateTopicsRequest{Topics: wanted})
	must(err)
	for _, err := range answer.Errors {
		must(err)
	}
	metadata, err := client.Metadata(soon(), &kafka.MetadataRequest{Topics: []string{topic}})
	must(err)
	check(len(metadata.Topics[0].Partitions) == 2, metadata)
}

func produce(index int, name string, codec kafka.Compression) func() {
	return func() {
		var messages []kafka.Message
		for n := range 10 {
			key := fmt.Sprintf("%s-%d", name, n)
			value := "value of " + key + " " + strings.Repeat("x", 100)
			messages = append(messages, record(n%2, []byte(key), []byte(value), int64(t0+1000*index+n)))
		}
		send(topic, codec, messages...)
	}
}

func nulls() {
	send(topic, 0, record(0, nil, []byte("no key"), t0+5000), record(0, []byte("tombstone"), nil, t0+5001))
}

func headers() {
	text := kafka.Header{Key: "text", Value: []byte("plain")}
	bytes := kafka.Header{Key: "bytes", Value: []byte{0, 0xff}}
	send(topic, 0, record(0, []byte("headers"), []byte("headers"), t0+5002, text, bytes))
}

func idempotent() {
	panic(none("its writer has no idempotence"))
}

func consumeInGroup() {
	member = kafka.NewReader(kafka.ReaderConfig{Brokers: []string{bootstrap}, GroupID: group, Topic: topic,
		StartOffset: kafka.FirstOffset, MaxWait: 500 * time.Millisecond})
	found := map[string]string{}
	ctx := soon()
	for len(found) < len(produced) {
		m, err := member.FetchMessage(ctx)
		must(err)
		found[string(m.Key)] = told(m)
		read[m.Partition] = m
	}
	check(reflect.DeepEqual(found, produced), "other records")
}

func committed() [2]int64 {
	answer, err := client.OffsetFetch(soon(), &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: {0, 1}}})
	must(err)
	must(answer.Error)
	var found [2]int64
	for _, partition := range answer.Topics[topic] {
		found[partition.Partition] = partition.CommittedOffset
	}
	return found
}

func commit() {
	must(member.CommitMessages(soon(), read[0], read[1]))
	must(member.Close())
	expected := [2]int64{read[0].Offset + 1, read[1].Offset + 1}
	found := committed()
	check(found == expected, fmt.Sprint(found, ", not ", expected))
}

func offsets(topic string, asked ...kafka.OffsetRequest) []kafka.PartitionOffsets {
	answer, err := client.ListOffsets(soon(), &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: asked}})
	must(err)
	for _, partition := range answer.Topics[topic] {
		must(partition.Error)
	}
	return answer.Topics[topic]
}

func lags() [2]int64 {
	at := committed()
	var lags [2]int64
	for _, partition := range offsets(topic, kafka.LastOffsetOf(0), kafka.LastOffsetOf(1)) {
		lags[partition.Partition] = partition.LastOffset - at[partition.Partition]
	}
	return lags
}

func lag() {
	before := lags()
	check(before == [2]int64{}, before)
	send(topic, 0, record(0, []byte("late"), []byte("late"), t0+7000))
	after := lags()
	check(after[0] > 0 && after[1] == 0, after)
}

func reader(topic string, isolation kafka.IsolationLevel) *kafka.Reader {
	return kafka.NewReader(kafka.ReaderConfig{Brokers: []string{bootstrap}, Topic: topic, Partition: 0,
		IsolationLevel: isolation, MaxWait: 500 * time.Millisecond})
}

func seek() {
	of := reader(topic, kafka.ReadUncommitted)
	defer of.Close()
	must(of.SetOffsetAt(soon(), time.UnixMilli(t0+2000)))
	m, err := of.ReadMessage(soon())
	must(err)
	check(string(m.Key) == "snappy-0", string(m.Key))
}

func listGroups() {
	answer, err := client.ListGroups(soon(), &kafka.ListGroupsRequest{})
	must(err)
	for _, one := range answer.Groups {
		if one.GroupID == group {
			return
		}
	}
	check(false, answer.Groups)
}

func alterConfig() {
	change := kafka.IncrementalAlterConfigsRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
		Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: "max.message.bytes", Value: "123456"}}}
	altered, err := client.IncrementalAlterConfigs(soon(),
		&kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{change}})
	must(err)
	must(altered.Resources[0].Error)
	asked := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
		ConfigNames: []string{"max.message.bytes"}}
	described, err := client.DescribeConfigs(soon(), &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{asked}})
	must(err)
	entries := described.Resources[0].ConfigEntries
	check(len(entries) == 1 && entries[0].ConfigValue == "123456", entries)
}

func deleteRecords() {
	panic(none("it has no DeleteRecords"))
}

func deleteTopic() {
	answer, err := client.DeleteTopics(soon(), &kafka.DeleteTopicsRequest{Topics: []string{topic + ".gone"}})
	must(err)
	must(answer.Errors[topic+".gone"])
	other := &kafka.Client{Addr: client.Addr, Timeout: client.Timeout, Transport: &kafka.Transport{}} // the first one's caches topics
	metadata, err := other.Metadata(soon(), &kafka.MetadataRequest{})
	must(err)
	for _, one := range metadata.Topics {
		check(one.Name != topic+".gone", one.Name)
	}
}

func transaction() {
	panic(none("its writer has no transactions"))
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
		err := recover()
		if why, absent := err.(none); absent {
			said = map[string]any{"feature": name, "none": why}
		} else if err != nil {
			said["ok"], said["why"] = false, fmt.Sprint(err)
		}
		json.NewEncoder(os.Stdout).Encode(said)
	}()
	feature()
}

func main() {
	json.NewEncoder(os.Stdout).Encode(map[string]string{"version": version("github.com/segmentio/kafka-go")})
	run("create topic", createTopic)
	run("produce none", produce(0, "none", 0))
	run("produce gzip", produce(1, "gzip", kafka.Gzip))
	run("produce snappy", produce(2, "snappy", kafka.Snappy))
	run("produce lz4", produce(3, "lz4", kafka.Lz4))
	run("produce zstd", produce(4, "zstd", kafka.Zstd))
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
