import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** The Java clients log in as they are told, write and read; see ../README.md. */
public final class Security {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int WAIT_MS = 20_000;
    private static final String MODULES = "org.apache.kafka.common.security.";

    private final Map<String, AutoCloseable> sessions = new HashMap<>();

    public static void main(String[] unused) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "off");
        System.out.println(JSON.writeValueAsString(Map.of("version", AppInfoParser.getVersion())));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        Security security = new Security();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(JSON.writeValueAsString(security.answer(JSON.readTree(line))));
        }
        System.exit(0);
    }

    private Map<String, Object> answer(JsonNode asked) {
        try {
            return switch (asked.get("do").asText()) {
                case "write" -> write(asked);
                case "read" -> read(asked);
                default -> close(asked);
            };
        } catch (ExecutionException e) {
            return error(e.getCause());
        } catch (Exception e) {
            return error(e);
        }
    }

    /** The class of the exception, and what it and its causes say. */
    private static Map<String, Object> error(Throwable error) {
        StringBuilder said = new StringBuilder();
        for (Throwable each = error; each != null; each = each.getCause()) {
            said.append(said.isEmpty() ? "" : ": ").append(each.getMessage());
        }
        return Map.of("error", error.getClass().getSimpleName(), "message", said.toString());
    }

    private Map<String, Object> write(JsonNode asked) throws Exception {
        String session = asked.get("session").asText();
        KafkaProducer<String, String> producer = producer(session, asked.get("login"));
        producer.send(new ProducerRecord<>(asked.get("topic").asText(), asked.get("value").asText())).get();
        return Map.of("ok", true);
    }

    @SuppressWarnings("unchecked")
    private KafkaProducer<String, String> producer(String session, JsonNode login) throws Exception {
        if (!sessions.containsKey(session)) {
            Map<String, Object> all = properties(login);
            all.putAll(Map.of("delivery.timeout.ms", 10_000, "request.timeout.ms", 5000, "max.block.ms", WAIT_MS));
            all.put("linger.ms", 0);
            sessions.put(session, new KafkaProducer<>(all, new StringSerializer(), new StringSerializer()));
        }
        return (KafkaProducer<String, String>) sessions.get(session);
    }

    @SuppressWarnings("unchecked")
    private Map<String, Object> read(JsonNode asked) throws Exception {
        String session = asked.get("session").asText();
        if (!sessions.containsKey(session)) {
            Map<String, Object> all = properties(asked.get("login"));
            all.putAll(Map.of("group.id", asked.get("group").asText(), "auto.offset.reset", "earliest"));
            all.put("enable.auto.commit", false);
            KafkaConsumer<String, String> made =
                new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
            made.subscribe(List.of(asked.get("topic").asText()));
            sessions.put(session, made);
        }
        KafkaConsumer<String, String> consumer = (KafkaConsumer<String, String>) sessions.get(session);
        List<String> values = new ArrayList<>();
        long end = System.currentTimeMillis() + WAIT_MS;
        while (values.size() < asked.get("count").asInt() && System.currentTimeMillis() < end) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                values.add(record.value());
            }
        }
        consumer.commitSync(Duration.ofMillis(WAIT_MS));
        return Map.of("values", values);
    }

    private Map<String, Object> close(JsonNode asked) throws Exception {
        AutoCloseable session = sessions.remove(asked.get("session").asText());
        if (session instanceof KafkaProducer<?, ?> producer) {
            producer.close(Duration.ZERO);
        } else if (session != null) {
            session.close();
        }
        return Map.of("ok", true);
    }

    /** The properties that docs/security-clients.md names. */
    private static Map<String, Object> properties(JsonNode login) throws Exception {
        Map<String, Object> all = new HashMap<>();
        all.put("bootstrap.servers", login.get("bootstrap").asText());
        all.put("client.id", login.get("client").asText());
        all.put("ssl.truststore.type", "PEM");
        all.put("ssl.truststore.location", login.get("ca").asText());
        String mechanism = login.path("mechanism").asText();
        all.put("security.protocol", mechanism.equals("mTLS") ? "SSL" : "SASL_SSL");
        if (mechanism.equals("mTLS")) {
            all.put("ssl.keystore.type", "PEM");
            all.put("ssl.keystore.location", login.get("own").asText());
            return all;
        }
        all.put("sasl.mechanism", mechanism);
        if (mechanism.equals("OAUTHBEARER")) {
            Path token = Files.createTempFile("token", "");
            Files.writeString(token, login.get("token").asText());
            token.toFile().deleteOnExit();
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", token.toUri().toString());
            all.put("sasl.oauthbearer.token.endpoint.url", token.toUri().toString());
            String handler = "oauthbearer.OAuthBearerLoginCallbackHandler";
            all.put("sasl.login.callback.handler.class", MODULES + handler);
            all.put("sasl.jaas.config", MODULES + "oauthbearer.OAuthBearerLoginModule required;");
            return all;
        }
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        String who = " required username=\"%s\" password=\"%s\";";
        String filled = String.format(who, login.get("user").asText(), login.get("password").asText());
        all.put("sasl.jaas.config", MODULES + module + filled);
        return all;
    }
}
