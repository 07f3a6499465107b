package ketch;

import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.utils.Utils;

/** A group member on the Java client; see tests/support/members.py. */
public final class Member implements ConsumerRebalanceListener {
    private static final Map<String, Class<?>> STRATEGIES =
            Map.of("range", RangeAssignor.class, "cooperative-sticky", CooperativeStickyAssignor.class);
    private static final int MOST_TRIES = 100;
    private static final String REMOTE = "remote-"; // the broker's assignors (KIP-848), which has the timeouts, too
    private final KafkaConsumer<String, String> consumer;
    private final boolean remote;
    private boolean uncommitted;

    private Member(KafkaConsumer<String, String> consumer, boolean remote) {
        this.consumer = consumer;
        this.remote = remote;
    }

    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        if (arguments[3].startsWith(REMOTE)) {
            properties.put("group.protocol", "consumer");
            properties.put("group.remote.assignor", arguments[3].substring(REMOTE.length()));
        } else {
            properties.put("partition.assignment.strategy", STRATEGIES.get(arguments[3]).getName());
            properties.put("session.timeout.ms", "6000");
            properties.put("heartbeat.interval.ms", "300");
        }
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        Test.listen();
        try (var consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            new Member(consumer, arguments[3].startsWith(REMOTE)).run(arguments[2]);
        }
    }

    private void run(String topic) {
        consumer.subscribe(List.of(topic), this);
        while (!Test.hasEnded()) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
            if (!records.isEmpty()) {
                StringBuilder words = new StringBuilder();
                records.forEach(r -> words.append(' ').append(r.partition()).append(':').append(r.value()));
                Test.say("read" + words);
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
            commitInEpoch();
        } catch (RebalanceInProgressException e) {
            return;
        }
        uncommitted = false;
        Test.say("committed");
    }

    /** A commit may meet a heartbeat that changes the member's epoch (STALE_MEMBER_EPOCH): in the new one it counts. */
    private void commitInEpoch() {
        for (int tries = 1; ; tries++) {
            try {
                consumer.commitSync();
                return;
            } catch (CommitFailedException e) {
                if (!remote || tries == MOST_TRIES) {
                    throw e;
                }
                Utils.sleep(20);
            }
        }
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        commit();
        Test.say("revoked" + words(partitions));
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        Test.say("assigned" + words(partitions));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        Test.say("lost" + words(partitions));
    }

    private static String words(Collection<TopicPartition> partitions) {
        return partitions.stream().map(p -> " " + p.partition()).collect(Collectors.joining());
    }
}
