// What the suite asks of the Java client, all in one JVM because each start costs seconds.
//
// java -cp JARS Checks.java BOOTSTRAP_SERVERS RUN [BROKERS CHECK...]
//
// Runs every check, or those named, also after one failed, and prints a line for each:
// "ok NAME" or "failed NAME: reason". RUN makes names of topics, groups and ids unique.
// The same source has to compile against every client that test_java.py names.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Checks {
    static final long WAIT_MS = 15_000;
    static final long BASE_MS = 1_700_000_000_000L;
    static String servers;
    static String run;
    static int brokers = 1;
    static int numbers = 0;
    static Admin admin;

    interface Check {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        servers = args[0];
        run = args[1];
        brokers = args.length > 2 ? Integer.parseInt(args[2]) : 1;
        admin = Admin.create(Map.of("bootstrap.servers", servers));
        // Without a broker every check would wait in turn.
        get(admin.describeCluster().clusterId());
        Map<String, Check> checks = new java.util.LinkedHashMap<>();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            checks.put("codec-" + codec, () -> codec(codec));
        }
        checks.put("idempotence", Checks::idempotence);
        checks.put("too-large", Checks::tooLarge);
        checks.put("committed-and-aborted", Checks::committedAndAborted);
        checks.put("open-transaction", Checks::openTransaction);
        checks.put("fencing", Checks::fencing);
        checks.put("epochs", Checks::epochs);
        checks.put("offsets-commit", () -> offsets(true));
        checks.put("offsets-abort", () -> offsets(false));
        checks.put("stale-group-metadata", Checks::staleGroupMetadata);
        checks.put("group-range", () -> group(strategy("Range")));
        checks.put("group-cooperative", () -> group(strategy("CooperativeSticky")));
        checks.put("group-new-protocol", () -> group("group.protocol", "consumer"));
        checks.put("seek-and-times", Checks::seekAndTimes);
        checks.put("topics", Checks::topics);
        checks.put("configs", Checks::configs);
        checks.put("cluster", Checks::cluster);
        checks.put("delete-records", Checks::deleteRecords);
        checks.put("list-offsets", Checks::listOffsets);
        checks.put("groups-admin", Checks::groupsAdmin);
        checks.put("transactions-admin", Checks::transactionsAdmin);
        if (args.length > 3) {
            checks.keySet().retainAll(Arrays.asList(args).subList(3, args.length));
        }
        for (Map.Entry<String, Check> each : checks.entrySet()) {
            try {
                each.getValue().run();
                System.out.println("ok " + each.getKey());
            } catch (Throwable problem) {
                String text = problem + " at " + Arrays.toString(problem.getStackTrace());
                System.out.println("failed " + each.getKey() + ": " + text.replace('\n', ' '));
            }
        }
        admin.close(Duration.ofSeconds(1));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    // --- what the checks share

    static void require(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    static void same(Object expected, Object found) {
        require(expected.equals(found), "expected " + expected + ", found " + found);
    }

    static void until(Callable<Boolean> condition, String what) throws Exception {
        long end = System.currentTimeMillis() + WAIT_MS;
        while (!condition.call()) {
            require(System.currentTimeMillis() < end, "waited for " + what);
        }
    }

    static String fresh(String prefix) {
        return "java-" + prefix + "-" + run + "-" + numbers++;
    }

    static <T> T get(Future<T> future) throws Exception {
        return future.get(WAIT_MS, TimeUnit.MILLISECONDS);
    }

    static String topic(int partitions, Map<String, String> configs) throws Exception {
        String name = fresh("topic");
        NewTopic ordered = new NewTopic(name, partitions, (short) brokers).configs(configs);
        get(admin.createTopics(List.of(ordered)).all());
        // The answer can come before the broker that is asked next knows the topic.
        until(() -> get(admin.listTopics().names()).contains(name), name);
        return name;
    }

    static KafkaProducer<String, String> producer(Object... settings) {
        Properties all = new Properties();
        all.put("bootstrap.servers", servers);
        all.put("max.block.ms", "15000");
        for (int at = 0; at < settings.length; at += 2) {
            all.put(settings[at], settings[at + 1]);
        }
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    static KafkaProducer<String, String> transactional(String id) {
        KafkaProducer<String, String> made = producer("transactional.id", id);
        made.initTransactions();
        return made;
    }

    static KafkaConsumer<String, String> consumer(String group, Object... settings) {
        Properties all = new Properties();
        all.put("bootstrap.servers", servers);
        all.put("auto.offset.reset", "earliest");
        all.put("enable.auto.commit", "false");
        all.put("heartbeat.interval.ms", "200");
        // Closing waits for the fetch that is under way.
        all.put("fetch.max.wait.ms", "50");
        if (group != null) {
            all.put("group.id", group);
        }
        for (int at = 0; at < settings.length; at += 2) {
            all.put(settings[at], settings[at + 1]);
        }
        if (all.containsKey("group.protocol")) {
            // The broker says it, and the client refuses to.
            all.remove("heartbeat.interval.ms");
        }
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    static List<ConsumerRecord<String, String>> read(String topic, String isolation)
            throws Exception {
        try (KafkaConsumer<String, String> reader = consumer(null, "isolation.level", isolation)) {
            TopicPartition at = new TopicPartition(topic, 0);
            reader.assign(List.of(at));
            long end = reader.endOffsets(List.of(at)).get(at);
            reader.seekToBeginning(List.of(at));
            List<ConsumerRecord<String, String>> found = new ArrayList<>();
            until(() -> {
                reader.poll(Duration.ofMillis(100)).forEach(found::add);
                return reader.position(at) >= end;
            }, "the end of " + topic);
            return found;
        }
    }

    static List<String> values(String topic, String isolation) throws Exception {
        List<String> found = new ArrayList<>();
        for (ConsumerRecord<String, String> record : read(topic, isolation)) {
            found.add(record.value());
        }
        return found;
    }

    // Apache Kafka answers a commit before its markers are written.
    static void sees(List<String> expected, String topic, String isolation) throws Exception {
        until(() -> values(topic, isolation).equals(expected), isolation + " " + expected);
    }

    static boolean isFenced(Throwable problem) {
        for (Throwable each = problem; each != null; each = each.getCause()) {
            if (each instanceof ProducerFencedException
                    || each instanceof InvalidProducerEpochException) {
                return true;
            }
        }
        return false;
    }

    // --- produce and consume

    static void codec(String codec) throws Exception {
        String name = topic(1, Map.of());
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (var sender = producer("compression.type", codec, "linger.ms", "5")) {
            for (int n = 0; n < 500; n++) {
                ProducerRecord<String, String> record =
                        new ProducerRecord<>(name, 0, BASE_MS + n, "k" + n, "value " + n);
                record.headers().add("n", Integer.toString(n).getBytes());
                sent.add(sender.send(record));
            }
            sent.add(sender.send(new ProducerRecord<>(name, 0, "gone", null)));
        }
        for (int n = 0; n < sent.size(); n++) {
            same((long) n, get(sent.get(n)).offset());
        }
        List<ConsumerRecord<String, String>> found = read(name, "read_uncommitted");
        same(501, found.size());
        ConsumerRecord<String, String> some = found.get(77);
        same("value 77 k77 1700000000077 77", some.value() + " " + some.key() + " "
                + some.timestamp() + " " + new String(some.headers().lastHeader("n").value()));
        require(found.get(500).value() == null, "the tombstone has a value");
    }

    static void idempotence() throws Exception {
        String name = topic(1, Map.of());
        List<String> expected = new ArrayList<>();
        try (var sender = producer("batch.size", "100")) {
            for (int n = 0; n < 2_000; n++) {
                expected.add("v" + n);
                sender.send(new ProducerRecord<>(name, 0, null, "v" + n));
            }
        }
        sees(expected, name, "read_uncommitted");
    }

    static void tooLarge() throws Exception {
        String name = topic(1, Map.of("max.message.bytes", "2000"));
        try (var sender = producer()) {
            try {
                get(sender.send(new ProducerRecord<>(name, "x".repeat(5_000))));
                require(false, "it was accepted");
            } catch (ExecutionException expected) {
                require(expected.getCause() instanceof RecordTooLargeException, "" + expected);
            }
            same(0L, get(sender.send(new ProducerRecord<>(name, "small"))).offset());
        }
    }

    // --- transactions

    static void committedAndAborted() throws Exception {
        String name = topic(1, Map.of());
        try (var sender = transactional(fresh("id"))) {
            for (int n = 0; n < 6; n++) {
                sender.beginTransaction();
                sender.send(new ProducerRecord<>(name, "v" + n));
                if (n % 3 == 1) {
                    sender.flush();
                }
                if (n % 2 == 0) {
                    sender.commitTransaction();
                } else {
                    sender.abortTransaction();
                }
            }
        }
        sees(List.of("v0", "v2", "v4"), name, "read_committed");
        List<String> all = values(name, "read_uncommitted");
        require(all.containsAll(List.of("v0", "v1", "v2", "v4")), "" + all);
    }

    static void openTransaction() throws Exception {
        String name = topic(1, Map.of());
        TopicPartition at = new TopicPartition(name, 0);
        try (var sender = transactional(fresh("id")); var plain = producer();
                var reader = consumer(null, "isolation.level", "read_committed")) {
            sender.beginTransaction();
            get(sender.send(new ProducerRecord<>(name, "open")));
            get(plain.send(new ProducerRecord<>(name, "plain")));
            same(0L, reader.endOffsets(List.of(at)).get(at));
            sees(List.of(), name, "read_committed");
            sees(List.of("open", "plain"), name, "read_uncommitted");
            sender.commitTransaction();
            until(() -> reader.endOffsets(List.of(at)).get(at) == 3L, "the marker");
            sees(List.of("open", "plain"), name, "read_committed");
        }
    }

    static void fencing() throws Exception {
        String name = topic(1, Map.of());
        String id = fresh("id");
        KafkaProducer<String, String> old = transactional(id);
        old.beginTransaction();
        get(old.send(new ProducerRecord<>(name, "old")));
        try (var heir = transactional(id)) {
            try {
                old.send(new ProducerRecord<>(name, "late"));
                old.commitTransaction();
                require(false, "the old one committed");
            } catch (KafkaException expected) {
                require(isFenced(expected), "not fenced but " + expected);
            }
            heir.beginTransaction();
            heir.send(new ProducerRecord<>(name, "new"));
            heir.commitTransaction();
        }
        old.close(Duration.ZERO);
        sees(List.of("new"), name, "read_committed");
        sees(List.of("old", "new"), name, "read_uncommitted");
    }

    // Prints the epochs of one producer after each of its transactions, for the caller to judge:
    // version 2 of the protocol raises it with each one, version 1 does not.
    static void epochs() throws Exception {
        String name = topic(1, Map.of());
        List<Integer> found = new ArrayList<>();
        try (var sender = transactional(fresh("id"))) {
            for (int n = 0; n < 4; n++) {
                sender.beginTransaction();
                sender.send(new ProducerRecord<>(name, "v" + n));
                if (n == 2) {
                    sender.flush();
                    sender.abortTransaction();
                } else {
                    sender.commitTransaction();
                }
                found.add(epochWhenEnded(name));
            }
        }
        System.out.println("epochs " + found);
    }

    static int epochWhenEnded(String name) throws Exception {
        TopicPartition at = new TopicPartition(name, 0);
        List<ProducerState> states = new ArrayList<>();
        until(() -> {
            states.clear();
            states.addAll(get(admin.describeProducers(List.of(at)).partitionResult(at))
                    .activeProducers());
            return states.size() == 1
                    && states.get(0).currentTransactionStartOffset().isEmpty();
        }, "the end of the transaction");
        return states.get(0).producerEpoch();
    }

    static void offsets(boolean commit) throws Exception {
        String source = topic(1, Map.of());
        String sink = topic(1, Map.of());
        String group = fresh("group");
        TopicPartition at = new TopicPartition(source, 0);
        try (var plain = producer(); var sender = transactional(fresh("id"));
                var reader = consumer(group, "isolation.level", "read_committed")) {
            for (int n = 0; n < 10; n++) {
                get(plain.send(new ProducerRecord<>(source, "v" + n)));
            }
            reader.subscribe(List.of(source));
            List<String> taken = new ArrayList<>();
            until(() -> {
                reader.poll(Duration.ofMillis(100)).forEach(record -> taken.add(record.value()));
                return taken.size() == 10;
            }, "the source's records");
            sender.beginTransaction();
            for (String value : taken) {
                sender.send(new ProducerRecord<>(sink, value));
            }
            sender.sendOffsetsToTransaction(
                    Map.of(at, new OffsetAndMetadata(10, "note")), reader.groupMetadata());
            if (commit) {
                sender.commitTransaction();
            } else {
                sender.flush();
                sender.abortTransaction();
            }
            OffsetAndMetadata found = reader.committed(Set.of(at)).get(at);
            same(commit ? "10 note" : "null",
                    found == null ? "null" : found.offset() + " " + found.metadata());
            sees(commit ? taken : List.of(), sink, "read_committed");
        }
    }

    // KIP-447: a member of an older generation cannot put its offsets into a transaction.
    static void staleGroupMetadata() throws Exception {
        String source = topic(1, Map.of());
        String group = fresh("group");
        TopicPartition at = new TopicPartition(source, 0);
        try (var sender = transactional(fresh("id")); var reader = consumer(group)) {
            reader.subscribe(List.of(source));
            until(() -> {
                reader.poll(Duration.ofMillis(50));
                return !reader.assignment().isEmpty();
            }, "the partition");
            var stale = reader.groupMetadata();
            reader.close();
            sender.beginTransaction();
            try {
                sender.sendOffsetsToTransaction(Map.of(at, new OffsetAndMetadata(5)), stale);
                sender.commitTransaction();
                require(false, "it was accepted");
            } catch (KafkaException expected) {
                sender.abortTransaction();
            }
        }
        try (var reader = consumer(group)) {
            require(reader.committed(Set.of(at)).get(at) == null, "the offset was committed");
        }
    }

    // --- groups, positions

    static Set<Integer> owned(Consumer<?, ?> reader) {
        Set<Integer> found = new TreeSet<>();
        reader.assignment().forEach(part -> found.add(part.partition()));
        return found;
    }

    static Object[] strategy(String assignor) {
        String name = "org.apache.kafka.clients.consumer." + assignor + "Assignor";
        return new Object[] {"partition.assignment.strategy", name};
    }

    static void group(Object... settings) throws Exception {
        String name = topic(4, Map.of());
        String group = fresh("group");
        Set<Integer> all = Set.of(0, 1, 2, 3);
        var first = consumer(group, settings);
        var second = consumer(group, settings);
        first.subscribe(List.of(name));
        until(() -> {
            first.poll(Duration.ofMillis(20));
            return owned(first).equals(all);
        }, "all partitions for one");
        second.subscribe(List.of(name));
        until(() -> {
            first.poll(Duration.ofMillis(20));
            second.poll(Duration.ofMillis(20));
            Set<Integer> both = new HashSet<>(owned(first));
            both.addAll(owned(second));
            return owned(first).size() == 2 && owned(second).size() == 2 && both.equals(all);
        }, "two partitions for each");
        second.close();
        until(() -> {
            first.poll(Duration.ofMillis(20));
            return owned(first).equals(all);
        }, "all partitions again");
        first.commitSync(Map.of(new TopicPartition(name, 1), new OffsetAndMetadata(7)));
        first.close();
        try (var later = consumer(group)) {
            TopicPartition at = new TopicPartition(name, 1);
            same(7L, later.committed(Set.of(at)).get(at).offset());
        }
    }

    static void seekAndTimes() throws Exception {
        String name = topic(1, Map.of());
        TopicPartition at = new TopicPartition(name, 0);
        try (var sender = producer(); var reader = consumer(null)) {
            for (int n = 0; n < 10; n++) {
                get(sender.send(new ProducerRecord<>(name, 0, 1_000L * (n + 1), null, "v" + n)));
            }
            reader.assign(List.of(at));
            same(3L, reader.offsetsForTimes(Map.of(at, 3_500L)).get(at).offset());
            var none = reader.offsetsForTimes(Map.of(at, 99_000L)).get(at);
            require(none == null, "found " + none);
            same(0L, reader.beginningOffsets(List.of(at)).get(at));
            same(10L, reader.endOffsets(List.of(at)).get(at));
            reader.seek(at, 8);
            List<String> found = new ArrayList<>();
            until(() -> {
                reader.poll(Duration.ofMillis(50)).forEach(record -> found.add(record.value()));
                return found.size() >= 2;
            }, "two records");
            same(List.of("v8", "v9"), found);
            // Out of range: back to the earliest, as auto.offset.reset says.
            reader.seek(at, 99);
            until(() -> {
                reader.poll(Duration.ofMillis(50)).forEach(record -> found.add(record.value()));
                return found.size() >= 12;
            }, "all records");
        }
    }

    // --- admin

    static void topics() throws Exception {
        String name = topic(2, Map.of());
        try {
            get(admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all());
            require(false, "the name was taken twice");
        } catch (ExecutionException expected) {
            require(expected.getCause() instanceof TopicExistsException, "" + expected);
        }
        get(admin.createPartitions(Map.of(name, NewPartitions.increaseTo(5))).all());
        until(() -> partitions(name).size() == 5, "five partitions");
        // Of several brokers another one may be asked, which hears of the topic a little later.
        until(() -> get(admin.listTopics().names()).contains(name), "the topic to be listed");
        get(admin.deleteTopics(List.of(name)).all());
        until(() -> !get(admin.listTopics().names()).contains(name), "the topic to go");
    }

    static void configs() throws Exception {
        String name = topic(1, Map.of("retention.ms", "3600000"));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
        var before = configsOf(resource);
        same("3600000", before.get("retention.ms").value());
        same(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, before.get("retention.ms").source());
        require(before.get("segment.bytes").isDefault(), "segment.bytes was not set");
        Collection<AlterConfigOp> change = List.of(
                new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"),
                        AlterConfigOp.OpType.SET),
                new AlterConfigOp(new ConfigEntry("retention.ms", ""),
                        AlterConfigOp.OpType.DELETE));
        get(admin.incrementalAlterConfigs(Map.of(resource, change)).all());
        until(() -> {
            var after = configsOf(resource);
            return after.get("cleanup.policy").value().equals("compact")
                    && after.get("retention.ms").value().equals("604800000");
        }, "the new settings");
    }

    // One of several brokers may not know a new topic yet, and the client does not ask again.
    static <T> T known(Callable<T> ask) throws Exception {
        List<T> found = new ArrayList<>();
        until(() -> {
            try {
                return found.add(ask.call());
            } catch (ExecutionException error) {
                require(error.getCause() instanceof UnknownTopicOrPartitionException, "" + error);
                return false;
            }
        }, "a broker to know the topic");
        return found.get(0);
    }

    static org.apache.kafka.clients.admin.Config configsOf(ConfigResource resource) throws Exception {
        return known(() -> get(admin.describeConfigs(List.of(resource)).all()).get(resource));
    }

    static List<TopicPartitionInfo> partitions(String topic) throws Exception {
        return known(() -> get(admin.describeTopics(List.of(topic)).allTopicNames())
                .get(topic).partitions());
    }

    static void cluster() throws Exception {
        var found = admin.describeCluster();
        same(brokers, get(found.nodes()).size());
        require(!get(found.clusterId()).isEmpty(), "no cluster id");
        var features = get(admin.describeFeatures().featureMetadata());
        same((short) 2, features.finalizedFeatures().get("transaction.version").maxVersionLevel());
        same(brokers, get(admin.describeLogDirs(get(found.nodes()).stream().map(n -> n.id()).toList())
                .allDescriptions()).size());
        String name = topic(brokers, Map.of());
        var partitions = partitions(name);
        same(brokers, (int) partitions.stream().map(each -> each.leader().id()).distinct().count());
        require(partitions.stream().allMatch(each -> each.replicas().size() == brokers), "replicas");
    }

    static void deleteRecords() throws Exception {
        String name = topic(1, Map.of());
        TopicPartition at = new TopicPartition(name, 0);
        try (var sender = producer()) {
            for (int n = 0; n < 5; n++) {
                get(sender.send(new ProducerRecord<>(name, "v" + n)));
            }
        }
        var until = org.apache.kafka.clients.admin.RecordsToDelete.beforeOffset(3);
        same(3L, get(admin.deleteRecords(Map.of(at, until)).lowWatermarks().get(at))
                .lowWatermark());
        sees(List.of("v3", "v4"), name, "read_uncommitted");
    }

    static void listOffsets() throws Exception {
        String name = topic(1, Map.of());
        TopicPartition at = new TopicPartition(name, 0);
        try (var sender = producer()) {
            for (long time : new long[] {5_000, 9_000, 7_000}) {
                get(sender.send(new ProducerRecord<>(name, 0, time, null, "v")));
            }
        }
        Map<OffsetSpec, Long> expected = new HashMap<>();
        expected.put(OffsetSpec.earliest(), 0L);
        expected.put(OffsetSpec.latest(), 3L);
        expected.put(OffsetSpec.maxTimestamp(), 1L);
        expected.put(OffsetSpec.forTimestamp(6_000), 1L);
        for (Map.Entry<OffsetSpec, Long> each : expected.entrySet()) {
            same(each.getValue(), get(admin.listOffsets(Map.of(at, each.getKey()))
                    .partitionResult(at)).offset());
        }
    }

    static void groupsAdmin() throws Exception {
        String name = topic(1, Map.of());
        String group = fresh("group");
        TopicPartition at = new TopicPartition(name, 0);
        try (var reader = consumer(group)) {
            reader.subscribe(List.of(name));
            until(() -> {
                reader.poll(Duration.ofMillis(20));
                return !reader.assignment().isEmpty();
            }, "the partition");
            reader.commitSync(Map.of(at, new OffsetAndMetadata(3)));
            var described = get(admin.describeConsumerGroups(List.of(group)).all()).get(group);
            same("Stable", described.state().toString());
            same(Set.of(at), described.members().iterator().next().assignment().topicPartitions());
        }
        same(3L, get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata())
                .get(at).offset());
        get(admin.alterConsumerGroupOffsets(group, Map.of(at, new OffsetAndMetadata(1))).all());
        same(1L, get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata())
                .get(at).offset());
        require(get(admin.listConsumerGroups().all()).stream()
                .anyMatch(listed -> listed.groupId().equals(group)), "not listed");
        get(admin.deleteConsumerGroups(List.of(group)).all());
        require(get(admin.listConsumerGroups().all()).stream()
                .noneMatch(listed -> listed.groupId().equals(group)), "still listed");
    }

    static void transactionsAdmin() throws Exception {
        String name = topic(1, Map.of());
        String id = fresh("id");
        TopicPartition at = new TopicPartition(name, 0);
        try (var sender = transactional(id)) {
            sender.beginTransaction();
            get(sender.send(new ProducerRecord<>(name, "open")));
            TransactionDescription open =
                    get(admin.describeTransactions(List.of(id)).all()).get(id);
            same(TransactionState.ONGOING, open.state());
            same(Set.of(at), open.topicPartitions());
            require(get(admin.listTransactions().all()).stream()
                    .anyMatch(listed -> listed.transactionalId().equals(id)), "not listed");
            ProducerState state = get(admin.describeProducers(List.of(at)).partitionResult(at))
                    .activeProducers().get(0);
            same(open.producerId(), state.producerId());
            same(0L, state.currentTransactionStartOffset().getAsLong());
            get(admin.fenceProducers(Collections.singleton(id)).all());
            try {
                sender.commitTransaction();
                require(false, "a fenced producer committed");
            } catch (KafkaException expected) {
                require(isFenced(expected), "not fenced but " + expected);
            }
        }
        sees(List.of(), name, "read_committed");
    }
}
