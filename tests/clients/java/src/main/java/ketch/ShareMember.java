package ketch;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A member of a share group; see tests/support/members.py. What it read is committed once the broker took its word. */
public final class ShareMember {
    private ShareMember() {}

    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("share.acknowledgement.mode", "explicit");
        properties.put("max.poll.records", "20");
        Test.listen();
        try (var consumer = new KafkaShareConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(arguments[2]));
            while (!Test.hasEnded()) {
                work(consumer);
            }
        }
    }

    private static void work(KafkaShareConsumer<String, String> consumer) {
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
        if (records.isEmpty()) {
            return;
        }
        StringBuilder words = new StringBuilder();
        records.forEach(r -> words.append(' ').append(r.partition()).append(':').append(r.value()));
        Test.say("read" + words);
        records.forEach(r -> consumer.acknowledge(r, AcknowledgeType.ACCEPT));
        boolean done = consumer.commitSync().values().stream().allMatch(Optional::isEmpty);
        Test.say(done ? "committed" : "failed");
    }
}
