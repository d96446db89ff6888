// An idempotent producer and a consumer in one JVM, while brokers die.
//
// java -cp JARS:CLASSES Load SERVERS TOPIC PARTITIONS RATE REQUEST_TIMEOUT_MS STREAM
//
// It tells each record that it sent, that was acknowledged (with the monotonic time) and that the
// consumer read. "stop" on standard input: produce no more, and tell "produced" when all is
// acknowledged. "end": read to the ends that all partitions have now, and end.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Load {
    static final PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), true);
    static volatile boolean isStopping;
    static volatile boolean isEnding;

    public static void main(String[] args) throws Exception {
        say("begun");
        Thread producer = new Thread(() -> produce(args), "producer");
        Thread consumer = new Thread(() -> consume(args), "consumer");
        producer.start();
        consumer.start();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        input.readLine();
        isStopping = true;
        producer.join();
        input.readLine();
        isEnding = true;
        consumer.join();
        System.exit(0);
    }

    static Properties settings(String[] args) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("request.timeout.ms", args[4]);
        settings.put("reconnect.backoff.max.ms", "300");
        return settings;
    }

    static void produce(String[] args) {
        Properties settings = settings(args);
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("delivery.timeout.ms", String.valueOf(Integer.MAX_VALUE));
        settings.put("max.block.ms", String.valueOf(Integer.MAX_VALUE));
        settings.put("retry.backoff.max.ms", "300");
        int partitions = Integer.parseInt(args[2]);
        long pauseNs = 1_000_000_000L / Integer.parseInt(args[3]);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            long due = System.nanoTime();
            for (int number = 0; !isStopping; number++) {
                int partition = number % partitions;
                String label = number + " " + partition;
                say("sent " + label);
                byte[] value = (args[5] + "/" + number + "/-1").getBytes(StandardCharsets.UTF_8);
                producer.send(new ProducerRecord<>(args[1], partition, null, value), (at, error) -> {
                    if (error == null) {
                        say("acked " + label + " " + at.offset() + " " + System.nanoTime());
                    } else {
                        say("problem " + label + " " + error);
                    }
                });
                due += pauseNs;
                long left = due - System.nanoTime();
                if (left > 0) {
                    Thread.sleep(left / 1_000_000, (int) (left % 1_000_000));
                }
            }
        } catch (Exception error) {
            say("problem the producer ended: " + error);
        }
        say("produced");
    }

    static void consume(String[] args) {
        Properties settings = settings(args);
        settings.put("auto.offset.reset", "none");
        settings.put("enable.auto.commit", "false");
        List<TopicPartition> all = new ArrayList<>();
        for (int partition = 0; partition < Integer.parseInt(args[2]); partition++) {
            all.add(new TopicPartition(args[1], partition));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(all);
            for (TopicPartition each : all) {
                consumer.seek(each, 0);
            }
            Map<TopicPartition, Long> ends = null;
            while (ends == null || !isAt(consumer, ends)) {
                if (ends == null && isEnding) {
                    ends = consumer.endOffsets(all);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    say("read " + record.partition() + " " + record.offset() + " "
                            + new String(record.value(), StandardCharsets.UTF_8));
                }
            }
        } catch (Exception error) {
            say("problem the consumer ended: " + error);
        }
    }

    static boolean isAt(KafkaConsumer<byte[], byte[]> consumer, Map<TopicPartition, Long> ends) {
        for (Map.Entry<TopicPartition, Long> end : ends.entrySet()) {
            if (consumer.position(end.getKey()) < end.getValue()) {
                return false;
            }
        }
        return true;
    }

    static void say(String line) {
        out.println(line);
    }
}
