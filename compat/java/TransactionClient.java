import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/**
 * Transactional producers and the consumers beside them, as many as a test wants, in one JVM.
 *
 * A line on standard input is a call: a word, the name of a client, and arguments, without spaces in them. Each is
 * answered by a line on standard output: "ok" and what was asked for, or "refused" and the exception. A partition is
 * written topic:partition, a setting name=value. The end of standard input ends the program.
 */
public final class TransactionClient {
    private static final Duration ANSWER = Duration.ofSeconds(30);
    private static final Duration GOODBYE = Duration.ofSeconds(5);

    private final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
    private final Map<String, List<Future<RecordMetadata>>> unanswered = new HashMap<>();
    private final Map<String, KafkaConsumer<String, String>> consumers = new HashMap<>();

    public static void main(String[] unused) throws IOException {
        TransactionClient client = new TransactionClient();
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String call = calls.readLine(); call != null; call = calls.readLine()) {
            String answer;
            try {
                answer = ("ok " + client.answer(call.split(" "))).trim();
            } catch (Exception thrown) {
                Throwable cause = thrown instanceof ExecutionException ? thrown.getCause() : thrown;
                answer = "refused " + cause.toString().replace('\n', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
        // Whoever asked is gone; so are the clients, without goodbyes that could take their time.
        Runtime.getRuntime().halt(0);
    }

    private String answer(String[] call) throws Exception {
        String name = call[1];
        List<String> rest = Arrays.asList(call).subList(2, call.length);
        switch (call[0]) {
            case "producer":
                producers.put(name, new KafkaProducer<>(settings(rest), new StringSerializer(), new StringSerializer()));
                unanswered.put(name, new ArrayList<>());
                return "";
            case "init":
                producers.get(name).initTransactions();
                return "";
            case "begin":
                producers.get(name).beginTransaction();
                return "";
            case "send":
                unanswered.get(name).add(producers.get(name).send(
                    new ProducerRecord<>(rest.get(0), Integer.valueOf(rest.get(1)), null, rest.get(2))));
                return "";
            case "flush":
                return flush(name);
            case "offsets":
                producers.get(name).sendOffsetsToTransaction(
                    offsets(rest.subList(1, rest.size())), consumers.get(rest.get(0)).groupMetadata());
                return "";
            case "commit":
                unanswered.get(name).clear();
                producers.get(name).commitTransaction();
                return "";
            case "abort":
                unanswered.get(name).clear();
                producers.get(name).abortTransaction();
                return "";
            case "consumer":
                consumers.put(name, new KafkaConsumer<>(settings(rest), new StringDeserializer(), new StringDeserializer()));
                return "";
            case "assign":
                consumers.get(name).assign(List.of(partition(rest.get(0))));
                consumers.get(name).seekToBeginning(List.of(partition(rest.get(0))));
                return "";
            case "subscribe":
                consumers.get(name).subscribe(rest);
                return "";
            case "poll":
                return poll(name, Duration.ofMillis(Long.parseLong(rest.get(0))));
            case "position":
                return "" + consumers.get(name).position(partition(rest.get(0)), ANSWER);
            case "end":
                return "" + consumers.get(name).endOffsets(List.of(partition(rest.get(0))), ANSWER).get(partition(rest.get(0)));
            case "close":
                return close(name);
            case "finalize":
                return finalized(name, rest.get(0), Short.parseShort(rest.get(1)));
            default:
                throw new IllegalArgumentException(call[0]);
        }
    }

    private String flush(String name) throws Exception {
        producers.get(name).flush();
        List<Future<RecordMetadata>> sent = unanswered.put(name, new ArrayList<>());
        for (Future<RecordMetadata> one : sent)
            one.get(ANSWER.toMillis(), TimeUnit.MILLISECONDS);
        return "";
    }

    private String poll(String name, Duration time) {
        StringBuilder said = new StringBuilder();
        for (ConsumerRecord<String, String> record : consumers.get(name).poll(time))
            said.append(' ').append(record.partition()).append(':').append(record.offset()).append(':').append(record.value());
        return said.toString().trim();
    }

    private String close(String name) {
        unanswered.remove(name);
        if (producers.containsKey(name))
            producers.remove(name).close(GOODBYE);
        else
            consumers.remove(name).close(GOODBYE);
        return "";
    }

    /** Sets the finalized level of a feature; the name of the client is the address of the server here. */
    private static String finalized(String bootstrap, String feature, short level) throws Exception {
        Properties settings = new Properties();
        settings.setProperty("bootstrap.servers", bootstrap);
        try (Admin admin = Admin.create(settings)) {
            var levels = admin.describeFeatures().featureMetadata().get().finalizedFeatures();
            short present = levels.containsKey(feature) ? levels.get(feature).maxVersionLevel() : 0;
            if (present == level)
                return "";
            var kind = level > present ? FeatureUpdate.UpgradeType.UPGRADE : FeatureUpdate.UpgradeType.SAFE_DOWNGRADE;
            admin.updateFeatures(Map.of(feature, new FeatureUpdate(level, kind)), new UpdateFeaturesOptions()).all().get();
            return "";
        }
    }

    private static Properties settings(List<String> words) {
        Properties settings = new Properties();
        for (String word : words) {
            String[] parts = word.split("=", 2);
            settings.setProperty(parts[0], parts[1]);
        }
        return settings;
    }

    private static TopicPartition partition(String word) {
        int colon = word.indexOf(':');
        return new TopicPartition(word.substring(0, colon), Integer.parseInt(word.substring(colon + 1)));
    }

    private static Map<TopicPartition, OffsetAndMetadata> offsets(List<String> words) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (String word : words) {
            String[] parts = word.split("=", 2);
            offsets.put(partition(parts[0]), new OffsetAndMetadata(Long.parseLong(parts[1])));
        }
        return offsets;
    }
}
