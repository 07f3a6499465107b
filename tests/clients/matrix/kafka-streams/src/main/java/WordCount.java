import java.nio.file.Files;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.Stores;

/** Kafka Streams' word count with a changelog; see ../README.md. */
public final class WordCount {
    private static final long WAIT_MS = 60_000;
    private static final String STORE = "counts";

    private final String bootstrap;
    private final String topic;
    private final String layout;
    private final Admin admin;
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private KafkaStreams streams;

    /** A step. */
    private interface Feature {
        void run() throws Exception;
    }

    private WordCount(String bootstrap, String topic, String layout) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.layout = layout;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) {
        System.out.println("{\"version\": \"" + AppInfoParser.getVersion() + "\"}");
        WordCount all = new WordCount(arguments[0], arguments[1], arguments[2]);
        Map<String, Feature> features = new LinkedHashMap<>();
        features.put("word count", all::wordCount);
        features.put("changelog", all::changelog);
        features.put("interactive query", all::query);
        features.put("restore", all::restore);
        features.put("exactly once", all::exactlyOnce);
        features.forEach((name, feature) -> {
            String outcome = "\"ok\": true";
            try {
                feature.run();
            } catch (Throwable e) {
                Throwable cause = e instanceof ExecutionException ? e.getCause() : e;
                String why = cause.getClass().getSimpleName() + ": " + cause.getMessage();
                outcome = "\"ok\": false, \"why\": \""
                    + why.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\s+", " ") + "\"";
            }
            System.out.println("{\"feature\": \"" + name + "\", " + outcome + "}");
        });
        System.exit(0);
    }

    private void create(String name, int partitions) throws Exception {
        Map<String, String> configs = layout.equals("-") ? Map.of() : Map.of("storage.layout", layout);
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(configs))).all().get();
    }

    private void start(String application, String in, String out, String guarantee) throws Exception {
        Properties config = new Properties();
        config.put("application.id", application);
        config.put("bootstrap.servers", bootstrap);
        config.put("processing.guarantee", guarantee);
        config.put("commit.interval.ms", "200");
        config.put("statestore.cache.max.bytes", "0");
        config.put("state.dir", Files.createTempDirectory("streams").toString());
        config.put("consumer.auto.offset.reset", "earliest");
        config.put("consumer.session.timeout.ms", "6000");
        config.put("producer.max.block.ms", "20000");
        if (!layout.equals("-")) {
            config.put("topic.storage.layout", layout);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(in, Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore(STORE))
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream()
            .to(out, Produced.with(Serdes.String(), Serdes.Long()));
        failure.set(null);
        streams = new KafkaStreams(builder.build(), config);
        streams.setUncaughtExceptionHandler(e -> {
            failure.set(e.getCause() == null ? e : e.getCause());
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
    }

    private void stop() {
        streams.close(Duration.ofSeconds(20));
    }

    private void send(String to, String... lines) throws Exception {
        try (var producer = new KafkaProducer<>(
                Map.<String, Object>of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer())) {
            for (String line : lines) {
                producer.send(new ProducerRecord<>(to, line)).get();
            }
        }
    }

    /** The last count of each word, as soon as they are what is expected. */
    private void expect(String out, Map<String, Long> expected, String isolation) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "isolation.level", isolation);
        Map<String, Long> found = new TreeMap<>();
        try (var reader = new KafkaConsumer<>(config, new StringDeserializer(), new LongDeserializer())) {
            List<TopicPartition> partitions = reader.partitionsFor(out).stream()
                .map(info -> new TopicPartition(out, info.partition())).toList();
            reader.assign(partitions);
            reader.seekToBeginning(partitions);
            long end = System.currentTimeMillis() + WAIT_MS;
            while (!found.equals(expected) && System.currentTimeMillis() < end) {
                if (failure.get() != null) {
                    throw new IllegalStateException(failure.get());
                }
                reader.poll(Duration.ofMillis(200)).forEach(record -> found.put(record.key(), record.value()));
            }
        }
        check(found.equals(expected), found);
    }

    private static void check(boolean right, Object found) {
        if (!right) {
            throw new AssertionError("found " + found);
        }
    }

    private void wordCount() throws Exception {
        create(topic, 2);
        create(topic + ".counts", 1);
        send(topic, "hello streams", "hello redis");
        start(topic + "-app", topic, topic + ".counts", "at_least_once");
        expect(topic + ".counts", Map.of("hello", 2L, "streams", 1L, "redis", 1L), "read_uncommitted");
        check(admin.listTopics().names().get().contains(topic + "-app-counts-repartition"), "no repartition topic");
    }

    private void changelog() throws Exception {
        String changelog = topic + "-app-counts-changelog";
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, changelog);
        var configs = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        check(configs.get("cleanup.policy").value().equals("compact"), configs.get("cleanup.policy"));
        check(layout.equals("-") || configs.get("storage.layout").value().equals(layout), configs.get("storage.layout"));
        // Values of a timestamped store have 8 bytes of time in front of the count: only the keys are compared.
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        Map<String, Integer> found = new TreeMap<>();
        try (var reader = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> partitions = List.of(new TopicPartition(changelog, 0), new TopicPartition(changelog, 1));
            reader.assign(partitions);
            reader.seekToBeginning(partitions);
            long end = System.currentTimeMillis() + WAIT_MS;
            while (found.size() < 3 && System.currentTimeMillis() < end) {
                reader.poll(Duration.ofMillis(200)).forEach(record -> found.merge(record.key(), 1, Integer::sum));
            }
        }
        check(found.keySet().equals(new TreeMap<>(Map.of("hello", 1, "streams", 1, "redis", 1)).keySet()), found);
    }

    private void query() {
        var store = streams.store(StoreQueryParameters.fromNameAndType(STORE, QueryableStoreTypes.<String, Long>keyValueStore()));
        check(store.get("hello") == 2, store.get("hello"));
    }

    private void restore() throws Exception {
        stop();
        start(topic + "-app", topic, topic + ".counts", "at_least_once");
        send(topic, "hello again");
        Map<String, Long> expected = Map.of("hello", 3L, "streams", 1L, "redis", 1L, "again", 1L);
        expect(topic + ".counts", expected, "read_uncommitted");
        stop();
    }

    private void exactlyOnce() throws Exception {
        create(topic + ".once", 2);
        create(topic + ".once-counts", 1);
        send(topic + ".once", "hello once", "hello transactions");
        start(topic + "-once", topic + ".once", topic + ".once-counts", "exactly_once_v2");
        expect(topic + ".once-counts", Map.of("hello", 2L, "once", 1L, "transactions", 1L), "read_committed");
        stop();
    }
}
