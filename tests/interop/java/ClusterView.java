// Prints what Java's AdminClient sees of a cluster, one line "name value" for each thing that it asks for.
//
// java -cp JARS:CLASSES ClusterView SERVER BROKER,BROKER TOPIC...

import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;

public final class ClusterView {
    /** How long is waited for who is away. */
    static final int AWAY_MS = 5000;
    static final List<String> KEYS = List.of(
            "broker.rack", "node.id", "default.replication.factor", "min.insync.replicas",
            "unclean.leader.election.enable", "num.partitions");

    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", args[0], "request.timeout.ms", 20000, "default.api.timeout.ms", 40000);
        List<String> topics = List.of(args).subList(2, args.length);
        try (Admin admin = Admin.create(settings)) {
            var cluster = admin.describeCluster();
            show("cluster nodes", () -> nodes(cluster.nodes().get()));
            show("cluster controller", () -> cluster.controller().get().id());
            var all = admin.describeCluster(new DescribeClusterOptions().includeFencedBrokers(true));
            show("cluster with fenced", () -> nodes(all.nodes().get()));
            for (var topic : admin.describeTopics(topics).topicNameValues().entrySet()) {
                show("topic " + topic.getKey(), () -> described(topic.getValue().get()));
            }
            for (String topic : topics) {
                TopicPartition first = new TopicPartition(topic, 0);
                show("end of " + topic, () ->
                        admin.listOffsets(Map.of(first, OffsetSpec.latest()), new ListOffsetsOptions().timeoutMs(AWAY_MS)).partitionResult(first).get().offset());
            }
            for (String broker : args[1].split(",")) {
                ConfigResource resource = new ConfigResource(ConfigResource.Type.BROKER, broker);
                show("configs of " + broker, () -> configs(
                        admin.describeConfigs(List.of(resource), new DescribeConfigsOptions().timeoutMs(AWAY_MS)).all().get().get(resource).entries()));
            }
        }
    }

    static void show(String name, Callable<Object> ask) throws Exception {
        Object found;
        try {
            found = ask.call();
        } catch (ExecutionException error) {
            found = error.getCause().getClass().getSimpleName();
        }
        System.out.println(name + "\t" + found);
    }

    static String nodes(Iterable<Node> found) {
        Map<Integer, String> by = new TreeMap<>();
        found.forEach(node -> by.put(node.id(), node.rack() + (node.isFenced() ? " fenced" : "")));
        return by.toString();
    }

    static String ids(List<Node> nodes) {
        return nodes == null ? "null" : nodes.stream().map(Node::idString).toList().toString();
    }

    static List<Node> sorted(List<Node> nodes) {
        return nodes.stream().sorted(Comparator.comparingInt(Node::id)).toList();
    }

    static String described(TopicDescription topic) {
        return topic.partitions().stream()
                .sorted(Comparator.comparingInt(TopicPartitionInfo::partition))
                .map(each -> "leader " + (each.leader() == null ? "none" : each.leader().idString())
                        + " replicas " + ids(each.replicas()) + " isr " + ids(sorted(each.isr()))
                        + " elr " + ids(each.elr()) + " last " + ids(each.lastKnownElr()))
                .collect(Collectors.joining("; ")) + (topic.isInternal() ? " internal" : "");
    }

    static String configs(Iterable<ConfigEntry> entries) {
        Map<String, String> by = new TreeMap<>();
        for (ConfigEntry entry : entries) {
            if (KEYS.contains(entry.name())) {
                by.put(entry.name(), entry.value() + " " + entry.source() + (entry.isReadOnly() ? " read-only" : ""));
            }
        }
        return by.toString();
    }
}
