import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

import java.io.IOException;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;

/**
 * A member of a consumer group: processes, commits, and tells what happened, a line each.
 *
 * Arguments are a topic and the settings of the consumer, name=value. A line on standard input, or its end, asks it to
 * leave the group and to end. What it tells: assigned, revoked (partitions), processed (partition, offsets), committed
 * (partition, offset), refused (why).
 */
public final class GroupMember {
    private static final Duration POLL = Duration.ofMillis(200);
    private static volatile boolean isWanted = true;

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.setProperty("enable.auto.commit", "false");
        settings.setProperty("auto.offset.reset", "earliest");
        // Where nothing listens for a while, as when a server restarts, the default grows to seconds.
        settings.setProperty("reconnect.backoff.max.ms", "200");
        for (int index = 1; index < arguments.length; index++) {
            String[] parts = arguments[index].split("=", 2);
            settings.setProperty(parts[0], parts[1]);
        }
        Thread listener = new Thread(GroupMember::listen);
        listener.setDaemon(true);
        listener.start();
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(arguments[0]), new Teller());
            while (isWanted)
                work(consumer);
        }
    }

    private static void listen() {
        try {
            System.in.read();
        } catch (IOException gone) {
            // Whoever asked for this member is gone, which is a wish too.
        }
        isWanted = false;
    }

    private static void work(KafkaConsumer<byte[], byte[]> consumer) {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (TopicPartition partition : records.partitions()) {
            List<ConsumerRecord<byte[], byte[]>> batch = records.records(partition);
            String offsets = batch.stream().map(record -> " " + record.offset()).collect(Collectors.joining());
            say("processed " + partition.partition() + offsets);
            ends.put(partition, new OffsetAndMetadata(batch.get(batch.size() - 1).offset() + 1));
        }
        if (ends.isEmpty())
            return;
        try {
            consumer.commitSync(ends);
        } catch (KafkaException refused) {
            say("refused " + refused.toString().replace('\n', ' '));
            return;
        }
        ends.forEach((partition, end) -> say("committed " + partition.partition() + " " + end.offset()));
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static final class Teller implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            tell("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            tell("revoked", partitions);
        }

        private static void tell(String word, Collection<TopicPartition> partitions) {
            say(word + partitions.stream().map(partition -> " " + partition.partition()).collect(Collectors.joining()));
        }
    }
}
