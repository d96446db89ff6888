// Kafka Streams on the jobs of bench/spark, in one JVM that stays while rounds come and go.
//
// java -cp JARS:CLASSES Streams BOOTSTRAP_SERVERS STATE_FOLDER
//
// Reads commands from standard input, one a line, and answers each with a line:
//   copy GUARANTEE COMMIT_MS SOURCE TARGET RECORDS_PER_PARTITION  -> SECONDS
//   start GUARANTEE COMMIT_MS SOURCE TARGET                       -> 1
//   stop                                                          -> 1
// A copy is over when the group has committed the end of its source; it begins with the first record.
// Each partition asks for a commit behind its last record, so that no interval is waited for. The last
// one is known by its offset: a task that moves to another thread begins to count anew.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Locale;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;

public class Streams {
    static final int PARTITIONS = 4;
    static final long TIMEOUT_NS = 120_000_000_000L;
    static String servers;
    static String folder;
    static KafkaStreams streams;
    static String application;
    static AtomicLong begun;

    public static void main(String[] args) throws Exception {
        servers = args[0];
        folder = args[1];
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line.split(" ")));
            System.out.flush();
        }
        stop();
    }

    static String answer(String[] words) throws Exception {
        if (words[0].equals("stop")) {
            stop();
            return "1";
        }
        boolean copies = words[0].equals("copy");
        long count = copies ? Long.parseLong(words[5]) : Long.MAX_VALUE;
        start(words[1], words[2], words[3], words[4], count);
        if (!copies) {
            return "1";
        }
        waitUntilCommitted(count * PARTITIONS);
        double seconds = (System.nanoTime() - begun.get()) / 1e9;
        stop();
        return String.format(Locale.ROOT, "%.6f", seconds);
    }

    static void start(String guarantee, String commitMs, String source, String target, long count) {
        application = "streams-" + UUID.randomUUID();
        begun = new AtomicLong();
        Properties settings = new Properties();
        settings.put("application.id", application);
        settings.put("bootstrap.servers", servers);
        settings.put("state.dir", folder);
        settings.put("processing.guarantee", guarantee);
        settings.put("commit.interval.ms", commitMs);
        settings.put("num.stream.threads", "2");
        settings.put("replication.factor", "1");
        // As Spark's sink is tuned here.
        settings.put("producer.batch.size", "524288");
        settings.put("producer.linger.ms", "5");
        // The default of 10 s is below a commit interval of 30 s, which would be refused.
        settings.put("producer.transaction.timeout.ms", "60000");
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG,
                Serdes.ByteArraySerde.class.getName());
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG,
                Serdes.ByteArraySerde.class.getName());
        StreamsBuilder builder = new StreamsBuilder();
        AtomicLong first = begun;
        builder.<byte[], byte[]>stream(source).process(() -> new Copy(first, count)).to(target);
        streams = new KafkaStreams(builder.build(), settings);
        streams.start();
    }

    static void waitUntilCommitted(long count) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        long end = System.nanoTime() + TIMEOUT_NS;
        try (Admin admin = Admin.create(settings)) {
            ListConsumerGroupOffsetsOptions stable =
                    new ListConsumerGroupOffsetsOptions().requireStable(true);
            for (long seen = 0; seen < count; Thread.sleep(5)) {
                if (System.nanoTime() > end || streams.state() == KafkaStreams.State.ERROR) {
                    throw new IllegalStateException("only " + seen + " records were committed");
                }
                if (begun.get() == 0) {
                    continue;
                }
                seen = admin.listConsumerGroupOffsets(application, stable)
                        .partitionsToOffsetAndMetadata().get().values().stream()
                        .mapToLong(each -> each == null ? 0 : each.offset()).sum();
            }
        }
    }

    static void stop() {
        if (streams != null) {
            streams.close(Duration.ofSeconds(20));
            streams = null;
        }
    }

    static class Copy extends ContextualProcessor<byte[], byte[], byte[], byte[]> {
        final AtomicLong first;
        final long count;

        Copy(AtomicLong first, long count) {
            this.first = first;
            this.count = count;
        }

        @Override
        public void process(Record<byte[], byte[]> record) {
            if (first.get() == 0) {
                first.compareAndSet(0, System.nanoTime());
            }
            context().forward(record);
            if (context().recordMetadata().get().offset() == count - 1) {
                context().commit();
            }
        }
    }
}
