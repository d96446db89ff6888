// The Java client's loads, in one JVM that stays while rounds come and go, so that it is warm.
//
// java -cp JARS:CLASSES Load BOOTSTRAP_SERVERS
//
// Reads commands from standard input, one a line, and answers each with a line of numbers:
//   transactions TOPIC SECONDS        -> COUNT SECONDS P50_MS P99_MS
//   consume TOPIC PARTITIONS RECORDS  -> SECONDS
// A transaction is begin, send one record of 100 bytes, commit. The producer lives on between
// commands of one topic, as an application's does.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Load {
    static String servers;
    static String producerTopic = "";
    static KafkaProducer<byte[], byte[]> producer;

    public static void main(String[] args) throws Exception {
        servers = args[0];
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("transactions")) {
                System.out.println(transactions(words[1], Double.parseDouble(words[2])));
            } else {
                System.out.println(
                        consume(words[1], Integer.parseInt(words[2]), Long.parseLong(words[3])));
            }
            System.out.flush();
        }
    }

    static void open(String topic) {
        if (topic.equals(producerTopic)) {
            return;
        }
        if (producer != null) {
            producer.close();
        }
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("transactional.id", topic);
        settings.put("linger.ms", "0");
        producer = new KafkaProducer<>(
                settings, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        producerTopic = topic;
    }

    static String transactions(String topic, double seconds) throws Exception {
        open(topic);
        byte[] value = new byte[100];
        long[] times = new long[1024];
        int count = 0;
        long begun = System.nanoTime();
        long end = begun + (long) (seconds * 1e9);
        long now = begun;
        while (now < end) {
            long before = now;
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, value));
            producer.commitTransaction();
            now = System.nanoTime();
            if (count == times.length) {
                times = Arrays.copyOf(times, 2 * count);
            }
            times[count++] = now - before;
        }
        long[] sorted = Arrays.copyOf(times, count);
        Arrays.sort(sorted);
        return String.format(Locale.ROOT, "%d %.6f %.6f %.6f", count, (now - begun) / 1e9,
                sorted[count / 2] / 1e6, sorted[Math.min(count - 1, count * 99 / 100)] / 1e6);
    }

    static String consume(String topic, int partitionCount, long recordCount) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.records", "10000");
        List<TopicPartition> partitions = new ArrayList<>();
        for (int number = 0; number < partitionCount; number++) {
            partitions.add(new TopicPartition(topic, number));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(partitions);
            long begun = System.nanoTime();
            consumer.seekToBeginning(partitions);
            long seen = 0;
            while (seen < recordCount) {
                seen += consumer.poll(Duration.ofSeconds(5)).count();
                if (System.nanoTime() - begun > 60_000_000_000L) {
                    throw new IllegalStateException("only " + seen + " records came");
                }
            }
            return String.format(Locale.ROOT, "%.6f", (System.nanoTime() - begun) / 1e9);
        }
    }
}
