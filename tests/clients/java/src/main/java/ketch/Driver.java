package ketch;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java clients, driven by a test: a command a line on standard input (words with tabs between: name, then KEY=VALUE),
 * answered by JSON lines, of which the last is {"done": true} or {"error": CLASS, "message": TEXT}. Bytes are Base64.
 * Arguments prop.X=V are client configuration X.
 */
public final class Driver {
    private static final long FIRST_TIMESTAMP = 1_700_000_000_000L;
    private final Map<String, String> arguments;
    private final PrintStream out;

    private Driver(Map<String, String> arguments, PrintStream out) {
        this.arguments = arguments;
        this.out = out;
    }

    public static void main(String[] ignored) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t");
            Map<String, String> arguments = new HashMap<>();
            for (int i = 1; i < words.length; i++) {
                String[] pair = words[i].split("=", 2);
                arguments.put(pair[0], pair[1]);
            }
            try {
                new Driver(arguments, out).run(words[0]);
                out.println("{\"done\": true}");
            } catch (Exception e) {
                Throwable error = e instanceof ExecutionException ? e.getCause() : e;
                out.println(object("error", error.getClass().getSimpleName(), "message", error.getMessage()));
            }
            out.flush();
        }
    }

    private void run(String command) throws Exception {
        switch (command) {
            case "produce" -> produce();
            case "consume" -> consume();
            case "offsets" -> offsets();
            case "create" -> create();
            case "describe" -> describe();
            case "delete" -> delete();
            case "configs" -> configs();
            default -> throw new IllegalArgumentException(command);
        }
    }

    /** Sends records that a reader can tell apart, with nulls, repeated headers and bytes of all kinds; prints each as it should come back. */
    private void produce() throws Exception {
        int partitions = number("partitions");
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        List<Future<RecordMetadata>> answers = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties(), new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int n = 0; n < number("count"); n++) {
                ProducerRecord<byte[], byte[]> record = record(n, n % partitions);
                records.add(record);
                answers.add(producer.send(record));
            }
            producer.flush();
        }
        for (int i = 0; i < records.size(); i++) {
            ProducerRecord<byte[], byte[]> r = records.get(i);
            RecordMetadata at = answers.get(i).get();
            print(at.partition(), at.offset(), r.timestamp(), r.key(), r.value(), r.headers());
        }
    }

    private ProducerRecord<byte[], byte[]> record(int n, int partition) {
        byte[] key = n % 7 == 0 ? null : n % 7 == 1 ? new byte[0] : bytes("key-" + n);
        byte[] value = n % 11 == 0 ? null : n % 11 == 1 ? new byte[0] : bytes(("value-" + n + " ").repeat(n % 50));
        ProducerRecord<byte[], byte[]> record =
                new ProducerRecord<>(arguments.get("topic"), partition, FIRST_TIMESTAMP + n, key, value);
        if (n % 3 == 0) {
            record.headers().add("n", bytes(Integer.toString(n))).add("n", new byte[] {0, -1, 13, 10}).add("", new byte[0]);
            record.headers().add("null", null);
        }
        return record;
    }

    private void consume() {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            List<TopicPartition> all = partitions();
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            long deadline = System.currentTimeMillis() + 20_000;
            while (all.stream().anyMatch(p -> consumer.position(p) < ends.get(p))) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(500))) {
                    print(r.partition(), r.offset(), r.timestamp(), r.key(), r.value(), r.headers());
                }
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("the end was not reached in 20 s");
                }
            }
        }
    }

    private void offsets() {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            List<TopicPartition> all = partitions();
            Map<TopicPartition, Long> times = new HashMap<>();
            all.forEach(p -> times.put(p, Long.parseLong(arguments.get("timestamp"))));
            Map<TopicPartition, Long> first = consumer.beginningOffsets(all);
            Map<TopicPartition, Long> end = consumer.endOffsets(all);
            Map<TopicPartition, OffsetAndTimestamp> at = consumer.offsetsForTimes(times);
            for (TopicPartition p : all) {
                Optional<OffsetAndTimestamp> found = Optional.ofNullable(at.get(p));
                out.println(object(
                        "partition", p.partition(), "beginning", first.get(p), "end", end.get(p),
                        "offset", found.map(OffsetAndTimestamp::offset).orElse(null),
                        "timestamp", found.map(OffsetAndTimestamp::timestamp).orElse(null)));
            }
        }
    }

    private void create() throws Exception {
        Map<String, String> configs = new HashMap<>();
        arguments.forEach((key, value) -> {
            if (key.startsWith("config.")) {
                configs.put(key.substring("config.".length()), value);
            }
        });
        Optional<Integer> partitions = Optional.ofNullable(arguments.get("partitions")).map(Integer::valueOf);
        NewTopic topic = new NewTopic(arguments.get("topic"), partitions, Optional.empty()).configs(configs);
        try (Admin admin = Admin.create(properties())) {
            var created = admin.createTopics(List.of(topic));
            created.all().get();
            out.println(object(
                    "name", topic.name(), "id", created.topicId(topic.name()).get().toString(),
                    "partitions", created.numPartitions(topic.name()).get()));
        }
    }

    private void describe() throws Exception {
        try (Admin admin = Admin.create(properties())) {
            String name = arguments.get("topic");
            TopicDescription topic = admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
            for (TopicPartitionInfo p : topic.partitions()) {
                out.println(object(
                        "name", topic.name(), "id", topic.topicId().toString(), "partition", p.partition(),
                        "leader", p.leader().id(), "port", p.leader().port()));
            }
        }
    }

    private void delete() throws Exception {
        try (Admin admin = Admin.create(properties())) {
            admin.deleteTopics(List.of(arguments.get("topic"))).all().get();
        }
    }

    private void configs() throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, arguments.get("topic"));
        try (Admin admin = Admin.create(properties())) {
            Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            for (ConfigEntry entry : config.entries()) {
                out.println(object(
                        "name", entry.name(), "value", entry.value(), "source", entry.source().toString(),
                        "type", entry.type().toString()));
            }
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer() {
        return new KafkaConsumer<>(properties(), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private List<TopicPartition> partitions() {
        List<TopicPartition> all = new ArrayList<>();
        for (int p = 0; p < number("partitions"); p++) {
            all.add(new TopicPartition(arguments.get("topic"), p));
        }
        return all;
    }

    /** Nothing but an end to waiting is set: the defaults are what most programs run with. */
    private Properties properties() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments.get("bootstrap"));
        properties.put("default.api.timeout.ms", "20000");
        properties.put("request.timeout.ms", "10000");
        properties.put("delivery.timeout.ms", "20000");
        properties.put("max.block.ms", "20000");
        arguments.forEach((key, value) -> {
            if (key.startsWith("prop.")) {
                properties.put(key.substring("prop.".length()), value);
            }
        });
        return properties;
    }

    private int number(String name) {
        return Integer.parseInt(arguments.get(name));
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private void print(int partition, long offset, long timestamp, byte[] key, byte[] value, Headers headers) {
        List<String> list = new ArrayList<>();
        for (Header header : headers) {
            list.add("[" + json(header.key()) + ", " + json(header.value()) + "]");
        }
        String record = object(
                "partition", partition, "offset", offset, "timestamp", timestamp, "key", key, "value", value);
        out.println(record.substring(0, record.length() - 1) + ", \"headers\": [" + String.join(", ", list) + "]}");
    }

    private static String object(Object... namesAndValues) {
        List<String> fields = new ArrayList<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            fields.add(json(namesAndValues[i]) + ": " + json(namesAndValues[i + 1]));
        }
        return "{" + String.join(", ", fields) + "}";
    }

    private static String json(Object value) {
        if (value == null || value instanceof Number) {
            return String.valueOf(value);
        }
        if (value instanceof byte[] data) {
            return '"' + Base64.getEncoder().encodeToString(data) + '"';
        }
        String text = value.toString().replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n");
        return '"' + text.replace("\r", "\\r").replace("\t", "\\t") + '"';
    }
}
