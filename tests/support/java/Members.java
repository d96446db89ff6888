// Consumers of one group in one JVM, which is killed sooner or later, and all of them with it.
//
// java -cp JARS:CLASSES Members SERVERS TOPIC GROUP PROTOCOL ASSIGNOR SESSION_MS NOTES NAME[@INSTANCE]...
//
// Each consumer has a thread. As in tests/support/group_member.py it notes each record that it
// processed, and commits afterwards. NOTES is one file for all of them.

import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnreleasedInstanceIdException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Members {
    static final Map<String, String> ASSIGNORS = Map.of(
            "range", "org.apache.kafka.clients.consumer.RangeAssignor",
            "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
            "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
            "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
    static final long RETRY_MS = 500;
    static FileOutputStream notes;

    public static void main(String[] args) throws Exception {
        notes = new FileOutputStream(args[6], true);
        for (String name : Arrays.copyOfRange(args, 7, args.length)) {
            new Thread(() -> live(settings(args, name), args[1]), name).start();
        }
    }

    // A killed consumer holds its instance id until its session ends. Whoever comes too early waits
    // alone: if its process ended, the consumers beside it would hold their ids in the same way.
    static void live(Properties settings, String topic) {
        while (true) {
            try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                    settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                consume(consumer, topic);
            } catch (UnreleasedInstanceIdException early) {
                write("refused " + early.getClass().getSimpleName() + "\n");
            }
            try {
                Thread.sleep(RETRY_MS);
            } catch (InterruptedException never) {
                return;
            }
        }
    }

    static Properties settings(String[] args, String name) {
        String[] names = name.split("@");
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[2]);
        settings.put("client.id", names[0]);
        settings.put("group.protocol", args[3]);
        if (args[3].equals("classic")) {
            settings.put("partition.assignment.strategy", ASSIGNORS.get(args[4]));
            settings.put("session.timeout.ms", args[5]);
            settings.put("heartbeat.interval.ms", "500");
        } else {
            settings.put("group.remote.assignor", args[4]);
        }
        if (names.length > 1) {
            settings.put("group.instance.id", names[1]);
        }
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        return settings;
    }

    static void consume(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        // A cooperative consumer reads on while it rebalances, but may not commit: what is refused
        // is due again, unless the partition goes.
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                ends.keySet().removeAll(partitions);
            }

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}
        });
        while (true) {
            ConsumerRecords<byte[], byte[]> records = poll(consumer);
            StringBuilder told = new StringBuilder();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                told.append("processed ").append(record.partition());
                told.append(' ').append(record.offset()).append('\n');
                ends.put(
                        new TopicPartition(topic, record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
            }
            write(told.toString());
            try {
                if (!ends.isEmpty()) {
                    consumer.commitSync(ends);
                    ends.clear();
                }
            } catch (KafkaException refused) {
                write("refused " + refused.getClass().getSimpleName() + "\n");
            }
        }
    }

    static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer) {
        try {
            return consumer.poll(Duration.ofMillis(200));
        } catch (UnreleasedInstanceIdException early) {
            throw early;
        } catch (KafkaException error) {
            // This consumer is at its end: the process is started again, with all of its consumers.
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            throw error;
        }
    }

    static synchronized void write(String text) {
        try {
            notes.write(text.getBytes(StandardCharsets.UTF_8));
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }
}
