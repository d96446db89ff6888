// Two producers and two consumers of the Java client in one JVM while brokers restart: see
// tests/support/rolling_client.py, which does and tells the same.
//
// java -cp JARS:CLASSES Rolling SERVERS NAME PARTITIONS PAUSE_MS ABORTS_EVERY

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Rolling {
    static final PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), true);
    static final long READ_TIMEOUT_NS = 60_000_000_000L;
    static volatile boolean isStopping;
    static volatile boolean hasEnded;
    static String servers;
    static String name;
    static int partitions;
    static long pauseMs;
    static int abortsEvery;

    interface Work {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        servers = args[0];
        name = args[1];
        partitions = Integer.parseInt(args[2]);
        pauseMs = Long.parseLong(args[3]);
        abortsEvery = Integer.parseInt(args[4]);
        AtomicInteger acknowledged = new AtomicInteger();
        AtomicInteger committed = new AtomicInteger();
        List<Thread> producers = List.of(
                begin("idempotent", () -> produce(name + "-idempotent", acknowledged)),
                begin("transactional", () -> transact(name + "-transactional", committed)));
        List<Thread> consumers = List.of(
                begin("reader-idempotent", () -> read(name + "-idempotent", "classic", acknowledged)),
                begin("reader-transactional", () -> read(name + "-transactional", "consumer", committed)));
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        isStopping = true;
        for (Thread producer : producers) {
            producer.join();
        }
        hasEnded = true;
        for (Thread consumer : consumers) {
            consumer.join();
        }
        say("done");
        System.exit(0);
    }

    static Thread begin(String part, Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception error) {
                say("problem " + name + "-" + part + " " + error);
            }
        });
        thread.start();
        return thread;
    }

    static KafkaProducer<byte[], byte[]> producer(String transactionalId) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        if (transactionalId != null) {
            settings.put("transactional.id", transactionalId);
        }
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static void produce(String topic, AtomicInteger acknowledged) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(null)) {
            for (int number = 0; !isStopping; number += partitions) {
                send(producer, topic, number, -1);
                acknowledged.addAndGet(partitions);
                Thread.sleep(pauseMs);
            }
        }
    }

    static void transact(String topic, AtomicInteger committed) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(topic)) {
            producer.initTransactions();
            for (int transaction = 0; !isStopping; transaction++) {
                producer.beginTransaction();
                send(producer, topic, transaction * partitions, transaction);
                boolean isCommitted = transaction % abortsEvery < abortsEvery - 1;
                if (isCommitted) {
                    producer.commitTransaction();
                    committed.addAndGet(partitions);
                } else {
                    producer.abortTransaction();
                }
                String outcome = isCommitted ? "COMMITTED" : "ABORTED";
                say("ended " + topic + " " + transaction + " " + outcome + " " + System.nanoTime());
                Thread.sleep(pauseMs);
            }
        }
    }

    static void send(KafkaProducer<byte[], byte[]> producer, String topic, int first, int transaction)
            throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int number = first; number < first + partitions; number++) {
            int partition = number % partitions;
            say("sent " + topic + " " + number + " " + transaction + " " + partition);
            byte[] value = (topic + "/" + number + "/" + transaction).getBytes(StandardCharsets.UTF_8);
            sent.add(producer.send(new ProducerRecord<>(topic, partition, null, value)));
        }
        producer.flush();
        for (int index = 0; index < partitions; index++) {
            long offset = sent.get(index).get().offset();
            say("acked " + topic + " " + (first + index) + " " + offset + " " + System.nanoTime());
        }
    }

    static void read(String topic, String protocol, AtomicInteger expected) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("group.id", topic + "-group");
        settings.put("group.protocol", protocol);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            int count = 0;
            long endedNs = 0;
            while (true) {
                boolean isLast = hasEnded;
                ConsumerRecords<byte[], byte[]> found = consumer.poll(Duration.ofMillis(200));
                for (ConsumerRecord<byte[], byte[]> each : found) {
                    say("read " + topic + " " + each.partition() + " " + each.offset() + " "
                            + new String(each.value(), StandardCharsets.UTF_8));
                }
                if (!found.isEmpty()) {
                    consumer.commitSync();
                }
                count += found.count();
                if (isLast && found.isEmpty() && count >= expected.get()) {
                    return;
                }
                if (isLast && endedNs == 0) {
                    endedNs = System.nanoTime();
                }
                if (isLast && System.nanoTime() - endedNs > READ_TIMEOUT_NS) {
                    throw new IllegalStateException(count + " of " + expected + " records were read");
                }
            }
        }
    }

    static void say(String line) {
        out.println(line);
    }
}
