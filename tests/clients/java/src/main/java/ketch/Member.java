package ketch;

import java.io.InputStream;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A group member on the Java client; see tests/support/members.py. */
public final class Member implements ConsumerRebalanceListener {
    private static final Map<String, Class<?>> STRATEGIES =
            Map.of("range", RangeAssignor.class, "cooperative-sticky", CooperativeStickyAssignor.class);
    private static volatile boolean stopped;
    private final KafkaConsumer<String, String> consumer;
    private boolean uncommitted;

    private Member(KafkaConsumer<String, String> consumer) {
        this.consumer = consumer;
    }

    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("partition.assignment.strategy", STRATEGIES.get(arguments[3]).getName());
        properties.put("session.timeout.ms", "6000");
        properties.put("heartbeat.interval.ms", "300");
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        Thread input = new Thread(Member::awaitEndOfInput);
        input.setDaemon(true);
        input.start();
        try (var consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            new Member(consumer).run(arguments[2]);
        }
    }

    private static void awaitEndOfInput() {
        try (InputStream in = System.in) {
            in.readAllBytes();
        } catch (java.io.IOException e) {
            System.err.println(e);
        }
        stopped = true;
    }

    private void run(String topic) {
        consumer.subscribe(List.of(topic), this);
        while (!stopped) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
            if (!records.isEmpty()) {
                StringBuilder words = new StringBuilder();
                records.forEach(r -> words.append(' ').append(r.partition()).append(':').append(r.value()));
                say("read" + words);
                uncommitted = true;
            }
            commit();
        }
    }

    /** In a rebalance that goes on while a cooperative member reads, the next poll comes first. */
    private void commit() {
        if (!uncommitted) {
            return;
        }
        try {
            consumer.commitSync();
        } catch (RebalanceInProgressException e) {
            return;
        }
        uncommitted = false;
        say("committed");
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        commit();
        say("revoked" + words(partitions));
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        say("assigned" + words(partitions));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        say("lost" + words(partitions));
    }

    private static String words(Collection<TopicPartition> partitions) {
        return partitions.stream().map(p -> " " + p.partition()).collect(Collectors.joining());
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
