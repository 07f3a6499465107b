package ketch;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A share group's member on the Java client; see tests/support/sharers.py. */
public final class Sharer {
    private final KafkaShareConsumer<String, String> consumer;
    private final boolean explicit;

    private Sharer(KafkaShareConsumer<String, String> consumer, boolean explicit) {
        this.consumer = consumer;
        this.explicit = explicit;
    }

    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("share.acknowledgement.mode", arguments[3]);
        Test.listen();
        try (var consumer = new KafkaShareConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            new Sharer(consumer, arguments[3].equals("explicit")).run(arguments[2]);
        }
    }

    private void run(String topic) {
        consumer.subscribe(List.of(topic));
        while (!Test.hasEnded()) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
            if (records.isEmpty()) {
                continue;
            }
            StringBuilder read = new StringBuilder();
            StringBuilder accepted = new StringBuilder();
            records.forEach(record -> {
                read.append(' ').append(record.value()).append(':').append(record.deliveryCount().orElse((short) 0));
                if (take(record)) {
                    accepted.append(' ').append(record.value());
                }
            });
            Test.say("read" + read);
            for (Map.Entry<TopicIdPartition, Optional<KafkaException>> each : consumer.commitSync().entrySet()) {
                each.getValue().ifPresent(error -> {
                    throw error;
                });
            }
            Test.say("accepted" + accepted);
        }
    }

    /** A value with a 0 at its end is released when it comes for the first time. */
    private boolean take(ConsumerRecord<String, String> record) {
        if (!explicit) {
            return true;
        }
        boolean again = record.value().endsWith("0") && record.deliveryCount().orElse((short) 0) == 1;
        consumer.acknowledge(record, again ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
        return !again;
    }
}
