package ketch;

import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringSerializer;

/** A producer in the middle of a transaction; see tests/clients/test_zombie.py. */
public final class Sender {
    private static final int FLUSHED_FIRST = 100;

    private Sender() {
    }

    public static void main(String[] arguments) throws InterruptedException {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("transactional.id", arguments[1]);
        Test.listen();
        try (var producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            Test.say(outcome(producer, arguments[1], arguments[2], Integer.parseInt(arguments[3])));
        }
    }

    /** As the documentation of KafkaProducer has it: a producer that is fenced gives up, after another error it aborts. */
    private static String outcome(KafkaProducer<String, String> producer, String id, String topic, int partitions)
            throws InterruptedException {
        try {
            try {
                send(producer, id, topic, partitions);
                producer.commitTransaction();
                return "committed";
            } catch (ProducerFencedException e) {
                return "fenced";
            } catch (KafkaException e) {
                producer.abortTransaction();
                return e.getClass().getSimpleName();
            }
        } catch (ProducerFencedException e) {
            return "fenced";
        }
    }

    private static void send(KafkaProducer<String, String> producer, String id, String topic, int partitions)
            throws InterruptedException {
        for (int count = 0; !Test.hasEnded(); count++) {
            producer.send(new ProducerRecord<>(topic, count % partitions, null, id + " " + count));
            if (count == FLUSHED_FIRST) {
                producer.flush();
                Test.say("open");
            }
            Thread.sleep(2);
        }
    }
}
