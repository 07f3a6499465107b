package ketch;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of a share group in one JVM, a thread each, which acknowledge every record: BOOTSTRAP GROUP TOPIC MEMBERS COUNT.
 * Acknowledgements go with the next fetch. After the first line of its input the members fetch no more, after the second
 * one they go on. It ends once so many records are accepted, and prints their number, and the seconds from the first record
 * on until half of them, and all, were.
 */
public final class ShareWorkers {
    private final AtomicLong accepted = new AtomicLong();
    private final AtomicLong begun = new AtomicLong();
    private final AtomicInteger failed = new AtomicInteger();
    private final String[] arguments;
    private volatile boolean paused;
    private final long count;

    private ShareWorkers(String[] arguments) {
        this.arguments = arguments;
        this.count = Long.parseLong(arguments[4]);
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        new ShareWorkers(arguments).run();
    }

    private void run() throws IOException, InterruptedException {
        List<Thread> members = new ArrayList<>();
        for (int n = 0; n < Integer.parseInt(arguments[3]); n++) {
            Thread member = new Thread(this::work);
            member.start();
            members.add(member);
        }
        System.in.read();
        paused = true;
        System.in.read();
        paused = false;
        long half = 0;
        while (accepted.get() < count && failed.get() == 0) {
            Thread.sleep(1);
            if (half == 0 && accepted.get() >= count / 2) {
                half = System.nanoTime();
            }
        }
        long end = System.nanoTime();
        for (Thread member : members) {
            member.join();
        }
        double seconds = (end - begun.get()) / 1e9;
        double first = (half - begun.get()) / 1e9;
        Test.say("{\"records\": " + accepted + ", \"seconds\": " + seconds + ", \"first_half\": " + first + "}");
        System.exit(failed.get());
    }

    private void work() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("share.acknowledgement.mode", "explicit");
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaShareConsumer<>(properties, bytes, bytes)) {
            consumer.setAcknowledgementCommitCallback((offsets, error) -> {
                if (error == null) {
                    offsets.values().forEach(each -> accepted.addAndGet(each.size()));
                } else {
                    System.err.println(error + ": " + offsets.keySet());
                }
            });
            consumer.subscribe(List.of(arguments[2]));
            while (accepted.get() < count && failed.get() == 0) {
                if (paused) {
                    Thread.sleep(1);
                    continue;
                }
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                if (!records.isEmpty()) {
                    begun.compareAndSet(0, System.nanoTime());
                }
                records.forEach(record -> consumer.acknowledge(record, AcknowledgeType.ACCEPT));
            }
        } catch (RuntimeException | InterruptedException error) {
            error.printStackTrace();
            failed.set(1);
        }
    }
}
