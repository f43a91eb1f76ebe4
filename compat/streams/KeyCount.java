import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

import java.io.IOException;
import java.time.Duration;
import java.util.Properties;

/**
 * Counts the records of a topic by key with Kafka Streams, exactly once, and writes every new count, as key=count, to
 * another topic.
 *
 * Arguments are the two topics and the settings of Kafka Streams, name=value. It tells the states it goes through, a
 * line each. The end of standard input asks it to end.
 */
public final class KeyCount {
    private static final Duration GOODBYE = Duration.ofSeconds(20);

    public static void main(String[] arguments) throws IOException {
        Properties settings = new Properties();
        settings.setProperty("processing.guarantee", "exactly_once_v2");
        // Every count is written, not only the last of each transaction: a count that is told twice, or never, shows.
        settings.setProperty("statestore.cache.max.bytes", "0");
        for (int index = 2; index < arguments.length; index++) {
            String[] parts = arguments[index].split("=", 2);
            settings.setProperty(parts[0], parts[1]);
        }
        StreamsBuilder topology = new StreamsBuilder();
        topology.stream(arguments[0], Consumed.with(Serdes.String(), Serdes.String()))
            .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .mapValues((key, count) -> key + "=" + count)
            .to(arguments[1], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(topology.build(), settings);
        streams.setStateListener((state, before) -> say("state " + state));
        streams.setUncaughtExceptionHandler(thrown -> {
            thrown.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        while (System.in.read() >= 0) {
            // Only the end of input counts.
        }
        streams.close(GOODBYE);
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
