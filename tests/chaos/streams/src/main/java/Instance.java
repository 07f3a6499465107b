import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;

/**
 * One instance of a Kafka Streams application with exactly_once_v2, until it is killed; see ../../../../test_streams.py.
 *
 * <p>It counts the words of topic `lines` into `counts`: each word's next count, as text. It joins topics `left` and
 * `right` by key into `pairs`: both values with a bar between them. Started as `Instance BOOTSTRAP APPLICATION STATE`.
 */
public final class Instance {
    private static final Serde<String> TEXT = Serdes.String();

    private Instance() {
    }

    public static void main(String[] arguments) {
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[0]);
        config.put("application.id", arguments[1]);
        config.put("state.dir", arguments[2]);
        config.put("processing.guarantee", "exactly_once_v2");
        config.put("commit.interval.ms", "100");
        config.put("statestore.cache.max.bytes", "0"); // each record's own count goes out
        config.put("default.key.serde", TEXT.getClass().getName());
        config.put("default.value.serde", TEXT.getClass().getName());
        config.put("consumer.auto.offset.reset", "earliest");
        config.put("consumer.session.timeout.ms", "6000");
        config.put("consumer.heartbeat.interval.ms", "500");
        StreamsBuilder builder = new StreamsBuilder();
        count(builder);
        join(builder);
        KafkaStreams streams = new KafkaStreams(builder.build(config), config);
        streams.setUncaughtExceptionHandler(e -> {
            e.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((now, before) -> System.out.println(now));
        streams.start();
    }

    private static void count(StreamsBuilder builder) {
        builder.stream("lines", Consumed.with(TEXT, TEXT))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("words", TEXT, TEXT))
            .count()
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to("counts", Produced.with(TEXT, TEXT));
    }

    private static void join(StreamsBuilder builder) {
        KStream<String, String> left = builder.stream("left", Consumed.with(TEXT, TEXT));
        KStream<String, String> right = builder.stream("right", Consumed.with(TEXT, TEXT));
        JoinWindows hour = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofHours(1), Duration.ofHours(1));
        left.join(right, (one, other) -> one + "|" + other, hour, StreamJoined.with(TEXT, TEXT, TEXT).withName("pairs"))
            .to("pairs", Produced.with(TEXT, TEXT));
    }
}
