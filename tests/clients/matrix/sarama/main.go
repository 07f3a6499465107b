// sarama through the matrix; see ../README.md.
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

	"github.com/IBM/sarama"
)

const (
	t0   = 1_700_000_000_000
	wait = 30 * time.Second
)

var (
	bootstrap, topic, layout = []string{os.Args[1]}, os.Args[2], os.Args[3]
	group                    = topic + "-group"
	produced                 = map[string]string{}
	admin                    sarama.ClusterAdmin
	read                     = map[int32]int64{} // partition -> the offset behind the last record that the group was given
)

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V4_1_0_0
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	return c
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

func bytes(b []byte) sarama.Encoder {
	if b == nil {
		return nil
	}
	return sarama.ByteEncoder(b)
}

func message(to string, partition int32, key, value []byte, timestamp int64, headers ...sarama.RecordHeader) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: to, Partition: partition, Key: bytes(key), Value: bytes(value),
		Timestamp: time.UnixMilli(timestamp), Headers: headers}
}

func told(partition int32, value []byte, timestamp time.Time, headers []sarama.RecordHeader) string {
	return fmt.Sprintf("%d %v %s %d %q", partition, value == nil, value, timestamp.UnixMilli(), headers)
}

func encoded(e sarama.Encoder) []byte {
	if e == nil {
		return nil
	}
	b, err := e.Encode()
	must(err)
	return b
}

func send(c *sarama.Config, messages ...*sarama.ProducerMessage) {
	to, err := sarama.NewSyncProducer(bootstrap, c)
	must(err)
	defer to.Close()
	must(to.SendMessages(messages))
	for _, m := range messages {
		if m.Topic == topic {
			produced[string(encoded(m.Key))] = told(m.Partition, encoded(m.Value), m.Timestamp, m.Headers)
		}
	}
}

func createTopic() {
	forever := "-1"
	configs := map[string]*string{"retention.ms": &forever}
	if layout != "-" {
		configs["storage.layout"] = &layout
	}
	for name, partitions := range map[string]int32{topic: 2, topic + ".short": 1, topic + ".gone": 1, topic + ".tx": 1} {
		must(admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: configs}, false))
	}
	described, err := admin.DescribeTopics([]string{topic})
	must(err)
	check(len(described[0].Partitions) == 2, described)
}

func produce(index int, codec sarama.CompressionCodec) func() {
	return func() {
		c := config()
		c.Producer.Compression = codec
		var messages []*sarama.ProducerMessage
		for n := range 10 {
			key := fmt.Sprintf("%s-%d", codec, n)
			value := "value of " + key + " " + strings.Repeat("x", 100)
			messages = append(messages, message(topic, int32(n%2), []byte(key), []byte(value), int64(t0+1000*index+n)))
		}
		send(c, messages...)
	}
}

func nulls() {
	send(config(), message(topic, 0, nil, []byte("no key"), t0+5000), message(topic, 0, []byte("tombstone"), nil, t0+5001))
}

func headers() {
	text := sarama.RecordHeader{Key: []byte("text"), Value: []byte("plain")}
	binary := sarama.RecordHeader{Key: []byte("bytes"), Value: []byte{0, 0xff}}
	send(config(), message(topic, 0, []byte("headers"), []byte("headers"), t0+5002, text, binary))
}

func idempotent() {
	c := config()
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1
	var messages []*sarama.ProducerMessage
	for n := range 5 {
		name := []byte(fmt.Sprintf("idempotent-%d", n))
		messages = append(messages, message(topic, 1, name, name, int64(t0+6000+n)))
	}
	send(c, messages...)
}

// handler hands on what its member is given; it commits and ends when commit is closed.
type handler struct {
	records chan *sarama.ConsumerMessage
	commit  chan struct{}
}

func (h handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (h handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case record := <-claim.Messages():
			if record == nil {
				return nil
			}
			session.MarkMessage(record, "")
			h.records <- record
		case <-h.commit:
			session.Commit()
			return nil
		}
	}
}

var (
	works  = handler{make(chan *sarama.ConsumerMessage, 1000), make(chan struct{})}
	member sarama.ConsumerGroup
	ended  = make(chan error, 1)
)

func consumeInGroup() {
	var err error
	member, err = sarama.NewConsumerGroup(bootstrap, group, config())
	must(err)
	go func() { ended <- member.Consume(context.Background(), []string{topic}, works) }()
	found := map[string]string{}
	late := time.After(wait)
	for len(found) < len(produced) {
		select {
		case r := <-works.records:
			var headers []sarama.RecordHeader
			for _, header := range r.Headers {
				headers = append(headers, *header)
			}
			found[string(r.Key)] = told(r.Partition, r.Value, r.Timestamp, headers)
			read[r.Partition] = r.Offset + 1
		case err := <-ended:
			panic(fmt.Errorf("the session ended: %v", err))
		case <-late:
			panic(fmt.Errorf("only %d records came", len(found)))
		}
	}
	check(reflect.DeepEqual(found, produced), "other records")
}

func committed() map[int32]int64 {
	answer, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1}})
	must(err)
	found := map[int32]int64{}
	for partition, block := range answer.Blocks[topic] {
		found[partition] = block.Offset
	}
	return found
}

func commit() {
	close(works.commit)
	must(<-ended)
	must(member.Close())
	check(reflect.DeepEqual(committed(), read), committed())
}

func lags() [2]int64 {
	client, err := sarama.NewClient(bootstrap, config())
	must(err)
	defer client.Close()
	at := committed()
	var lags [2]int64
	for partition := range int32(2) {
		end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
		must(err)
		lags[partition] = end - at[partition]
	}
	return lags
}

func lag() {
	before := lags()
	check(before == [2]int64{}, before)
	send(config(), message(topic, 0, []byte("late"), []byte("late"), t0+7000))
	after := lags()
	check(after[0] > 0 && after[1] == 0, after)
}

func poll(c *sarama.Config, topic string, offset int64, count int) (found []*sarama.ConsumerMessage) {
	consumer, err := sarama.NewConsumer(bootstrap, c)
	must(err)
	defer consumer.Close()
	of, err := consumer.ConsumePartition(topic, 0, offset)
	must(err)
	defer of.Close()
	late := time.After(wait)
	for len(found) < count {
		select {
		case r := <-of.Messages():
			found = append(found, r)
		case <-late:
			panic(fmt.Errorf("only %d records came", len(found)))
		}
	}
	return found
}

func offset(topic string, time int64) int64 {
	client, err := sarama.NewClient(bootstrap, config())
	must(err)
	defer client.Close()
	found, err := client.GetOffset(topic, 0, time)
	must(err)
	return found
}

func seek() {
	key := string(poll(config(), topic, offset(topic, t0+2000), 1)[0].Key)
	check(key == "snappy-0", key)
}

func listGroups() {
	groups, err := admin.ListConsumerGroups()
	must(err)
	_, there := groups[group]
	check(there, groups)
}

func alterConfig() {
	size := "123456"
	entry := map[string]sarama.IncrementalAlterConfigsEntry{
		"max.message.bytes": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &size}}
	must(admin.IncrementalAlterConfig(sarama.TopicResource, topic, entry, false))
	wanted := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"max.message.bytes"}}
	entries, err := admin.DescribeConfig(wanted)
	must(err)
	check(len(entries) == 1 && entries[0].Value == size, entries)
}

func deleteRecords() {
	short := topic + ".short"
	var messages []*sarama.ProducerMessage
	for n := range 10 {
		messages = append(messages, message(short, 0, []byte(fmt.Sprintf("short-%d", n)), []byte{}, int64(t0+n)))
	}
	send(config(), messages...)
	border := messages[5].Offset
	must(admin.DeleteRecords(short, map[int32]int64{0: border}))
	start := offset(short, sarama.OffsetOldest)
	check(start == border, start)
}

func deleteTopic() {
	must(admin.DeleteTopic(topic + ".gone"))
	topics, err := admin.ListTopics()
	must(err)
	_, there := topics[topic+".gone"]
	check(!there, topics)
}

func transaction() {
	c := config()
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1
	c.Producer.Transaction.ID = topic
	c.Producer.Transaction.Retry.Max = 3
	to, err := sarama.NewSyncProducer(bootstrap, c)
	must(err)
	defer to.Close()
	for _, name := range []string{"aborted", "committed"} {
		must(to.BeginTxn())
		for n := range 3 {
			_, _, err := to.SendMessage(message(topic+".tx", 0, []byte(fmt.Sprintf("%s-%d", name, n)), []byte{}, int64(t0+n)))
			must(err)
		}
		if name == "committed" {
			must(to.CommitTxn())
		} else {
			must(to.AbortTxn())
		}
	}
	c = config()
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	var keys []string
	for _, r := range poll(c, topic+".tx", sarama.OffsetOldest, 3) {
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
	var err error
	admin, err = sarama.NewClusterAdmin(bootstrap, config())
	must(err)
	json.NewEncoder(os.Stdout).Encode(map[string]string{"version": version("github.com/IBM/sarama")})
	run("create topic", createTopic)
	for index, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP,
		sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD} {
		run("produce "+codec.String(), produce(index, codec))
	}
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
