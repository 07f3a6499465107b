import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** The Java clients through the matrix; see ../README.md. Compiles with kafka-clients 2.8 to 4.x. */
public final class Matrix {
    private static final long T0 = 1_700_000_000_000L;
    private static final Duration TICK = Duration.ofMillis(200);
    private static final long WAIT_MS = 30_000;
    private static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};

    private final String bootstrap;
    private final String topic;
    private final String layout;
    private final String group;
    private final TopicPartition first;
    private final TopicPartition second;
    private final Admin admin;
    private final Map<String, List<Object>> produced = new HashMap<>();
    private KafkaConsumer<byte[], byte[]> member;

    /** A step of the scenario. */
    private interface Feature {
        void run() throws Exception;
    }

    private Matrix(String bootstrap, String topic, String layout) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.layout = layout;
        this.group = topic + "-group";
        this.first = new TopicPartition(topic, 0);
        this.second = new TopicPartition(topic, 1);
        this.admin = Admin.create(config());
    }

    public static void main(String[] arguments) {
        System.out.println("{\"version\": \"" + AppInfoParser.getVersion() + "\"}");
        Matrix matrix = new Matrix(arguments[0], arguments[1], arguments[2]);
        for (Map.Entry<String, Feature> feature : matrix.features().entrySet()) {
            String outcome = "\"ok\": true";
            try {
                feature.getValue().run();
            } catch (Throwable e) {
                Throwable cause = e instanceof ExecutionException ? e.getCause() : e;
                outcome = "\"ok\": false, \"why\": \"" + escaped(cause.getClass().getSimpleName() + ": " + cause.getMessage()) + "\"";
            }
            System.out.println("{\"feature\": \"" + feature.getKey() + "\", " + outcome + "}");
        }
        System.exit(0);
    }

    private static String escaped(String text) {
        return text.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\s+", " ");
    }

    private Map<String, Feature> features() {
        Map<String, Feature> all = new LinkedHashMap<>();
        all.put("create topic", this::createTopic);
        for (int i = 0; i < CODECS.length; i++) {
            int index = i;
            all.put("produce " + CODECS[i], () -> produce(index));
        }
        all.put("null key and value", this::nulls);
        all.put("headers", this::headers);
        all.put("idempotent producer", this::idempotent);
        all.put("consume in a group", this::consumeInGroup);
        all.put("commit", this::commit);
        all.put("lag", this::lag);
        all.put("seek by timestamp", this::seek);
        all.put("list groups", this::listGroups);
        all.put("alter config", this::alterConfig);
        all.put("delete records", this::deleteRecords);
        all.put("delete topic", this::deleteTopic);
        all.put("transaction", this::transaction);
        return all;
    }

    private Map<String, Object> config(String... more) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < more.length; i += 2) {
            config.put(more[i], more[i + 1]);
        }
        return config;
    }

    private KafkaProducer<byte[], byte[]> producer(String... more) {
        Map<String, Object> config = config("acks", "all", "linger.ms", "5", "enable.idempotence", "false");
        config.putAll(config(more));
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaConsumer<byte[], byte[]> consumer(String... more) {
        Map<String, Object> config = config("enable.auto.commit", "false", "auto.offset.reset", "earliest");
        config.putAll(config(more));
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static void check(boolean right, Object found) {
        if (!right) {
            throw new AssertionError("found " + found);
        }
    }

    private static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    private static List<Object> told(int partition, byte[] value, long timestamp, Iterable<Header> headers) {
        List<Object> all = new ArrayList<>(Arrays.asList(partition, text(value), timestamp));
        headers.forEach(header -> all.add(header.key() + Arrays.toString(header.value())));
        return all;
    }

    private ProducerRecord<byte[], byte[]> record(int partition, String key, String value, long timestamp) {
        return new ProducerRecord<>(topic, partition, timestamp, bytes(key), bytes(value));
    }

    private void send(Collection<ProducerRecord<byte[], byte[]>> records, String... more) throws Exception {
        try (KafkaProducer<byte[], byte[]> to = producer(more)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (ProducerRecord<byte[], byte[]> record : records) {
                sent.add(to.send(record));
                if (record.topic().equals(topic)) {
                    produced.put(text(record.key()),
                        told(record.partition(), record.value(), record.timestamp(), record.headers()));
                }
            }
            for (Future<RecordMetadata> future : sent) {
                future.get();
            }
        }
    }

    private static List<ConsumerRecord<byte[], byte[]>> poll(KafkaConsumer<byte[], byte[]> of, int count) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        long end = System.currentTimeMillis() + WAIT_MS;
        while (found.size() < count && System.currentTimeMillis() < end) {
            of.poll(TICK).forEach(found::add);
        }
        return found;
    }

    private void createTopic() throws Exception {
        Map<String, String> configs = new HashMap<>(Map.of("retention.ms", "-1"));
        if (!layout.equals("-")) {
            configs.put("storage.layout", layout);
        }
        List<NewTopic> wanted = new ArrayList<>();
        wanted.add(new NewTopic(topic, 2, (short) 1).configs(configs));
        for (String end : List.of(".short", ".gone", ".tx")) {
            wanted.add(new NewTopic(topic + end, 1, (short) 1).configs(configs));
        }
        admin.createTopics(wanted).all().get();
        try (KafkaConsumer<byte[], byte[]> reader = consumer()) {
            int partitions = reader.partitionsFor(topic).size();
            check(partitions == 2, partitions);
        }
    }

    private void produce(int index) throws Exception {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int n = 0; n < 10; n++) {
            String name = CODECS[index] + "-" + n;
            records.add(record(n % 2, name, "value of " + name + " " + "x".repeat(100), T0 + 1000L * index + n));
        }
        send(records, "compression.type", CODECS[index]);
    }

    private void nulls() throws Exception {
        send(List.of(record(0, null, "no key", T0 + 5000), record(0, "tombstone", null, T0 + 5001)));
    }

    private void headers() throws Exception {
        ProducerRecord<byte[], byte[]> record = record(0, "headers", "headers", T0 + 5002);
        record.headers().add("text", bytes("plain")).add("bytes", new byte[] {0, (byte) 0xff});
        send(List.of(record));
    }

    private void idempotent() throws Exception {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int n = 0; n < 5; n++) {
            records.add(record(1, "idempotent-" + n, "idempotent-" + n, T0 + 6000 + n));
        }
        send(records, "enable.idempotence", "true");
    }

    private void consumeInGroup() {
        member = consumer("group.id", group);
        member.subscribe(List.of(topic));
        Map<String, List<Object>> found = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : poll(member, produced.size())) {
            List<Object> all = told(record.partition(), record.value(), record.timestamp(), record.headers());
            check(found.put(text(record.key()), all) == null, "a record twice");
        }
        check(found.equals(produced), found.size() + " records, or other ones");
    }

    private void commit() {
        member.commitSync();
        List<Long> positions = List.of(member.position(first), member.position(second));
        member.close();
        try (KafkaConsumer<byte[], byte[]> other = consumer("group.id", group)) {
            var committed = other.committed(Set.of(first, second));
            List<Long> found = List.of(committed.get(first).offset(), committed.get(second).offset());
            check(found.equals(positions), found);
        }
    }

    private List<Long> lags() throws Exception {
        var committed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        var ends = admin.listOffsets(Map.of(first, OffsetSpec.latest(), second, OffsetSpec.latest())).all().get();
        List<Long> lags = new ArrayList<>();
        for (TopicPartition partition : List.of(first, second)) {
            lags.add(ends.get(partition).offset() - committed.get(partition).offset());
        }
        return lags;
    }

    private void lag() throws Exception {
        List<Long> before = lags();
        check(before.equals(List.of(0L, 0L)), before);
        send(List.of(record(0, "late", "late", T0 + 7000)));
        List<Long> after = lags();
        check(after.get(0) > 0 && after.get(1) == 0, after);
    }

    private void seek() {
        try (KafkaConsumer<byte[], byte[]> reader = consumer()) {
            reader.assign(List.of(first));
            reader.seek(first, reader.offsetsForTimes(Map.of(first, T0 + 2000)).get(first).offset());
            String key = text(poll(reader, 1).get(0).key());
            check(Objects.equals(key, "snappy-0"), key);
        }
    }

    private void listGroups() throws Exception {
        var groups = admin.listConsumerGroups().all().get();
        check(groups.stream().anyMatch(listing -> listing.groupId().equals(group)), groups);
    }

    private void alterConfig() throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        var set = new AlterConfigOp(new ConfigEntry("max.message.bytes", "123456"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
        String value = admin.describeConfigs(List.of(resource)).all().get().get(resource).get("max.message.bytes").value();
        check(value.equals("123456"), value);
    }

    private void deleteRecords() throws Exception {
        TopicPartition partition = new TopicPartition(topic + ".short", 0);
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int n = 0; n < 10; n++) {
            records.add(new ProducerRecord<>(partition.topic(), 0, T0 + n, bytes("short-" + n), new byte[0]));
        }
        send(records);
        try (KafkaConsumer<byte[], byte[]> reader = consumer()) {
            reader.assign(List.of(partition));
            long border = poll(reader, 10).get(5).offset();
            admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(border))).all().get();
            long start = reader.beginningOffsets(List.of(partition)).get(partition);
            check(start == border, start);
        }
    }

    private void deleteTopic() throws Exception {
        admin.deleteTopics(List.of(topic + ".gone")).all().get();
        Set<String> names = admin.listTopics().names().get();
        check(!names.contains(topic + ".gone"), names);
    }

    private void transaction() {
        TopicPartition partition = new TopicPartition(topic + ".tx", 0);
        try (KafkaProducer<byte[], byte[]> to =
                producer("transactional.id", topic, "enable.idempotence", "true", "max.block.ms", "20000")) {
            to.initTransactions();
            for (String name : List.of("aborted", "committed")) {
                to.beginTransaction();
                for (int n = 0; n < 3; n++) {
                    to.send(new ProducerRecord<>(partition.topic(), 0, T0 + n, bytes(name + "-" + n), new byte[0]));
                }
                to.flush();
                if (name.equals("aborted")) {
                    to.abortTransaction();
                } else {
                    to.commitTransaction();
                }
            }
        }
        try (KafkaConsumer<byte[], byte[]> reader = consumer("isolation.level", "read_committed")) {
            reader.assign(List.of(partition));
            Map<Long, String> keys = new TreeMap<>();
            poll(reader, 3).forEach(record -> keys.put(record.offset(), text(record.key())));
            check(List.copyOf(keys.values()).equals(List.of("committed-0", "committed-1", "committed-2")), keys);
        }
    }
}
