// Prints the bytes of the messages that tests/unit/protocol/test_newest.py builds, as Apache Kafka's
// own classes write them: a line "API KIND VERSION BASE64" each, in the order of that file.
//
// java -cp JARS Messages.java

import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ApiVersionsRequestData;
import org.apache.kafka.common.message.ApiVersionsResponseData;
import org.apache.kafka.common.message.ApiVersionsResponseData.ApiVersion;
import org.apache.kafka.common.message.ApiVersionsResponseData.FinalizedFeatureKey;
import org.apache.kafka.common.message.ApiVersionsResponseData.SupportedFeatureKey;
import org.apache.kafka.common.message.DeleteGroupsRequestData;
import org.apache.kafka.common.message.DeleteGroupsResponseData;
import org.apache.kafka.common.message.DeleteGroupsResponseData.DeletableGroupResult;
import org.apache.kafka.common.message.TxnOffsetCommitRequestData;
import org.apache.kafka.common.message.TxnOffsetCommitRequestData.TxnOffsetCommitRequestPartition;
import org.apache.kafka.common.message.TxnOffsetCommitRequestData.TxnOffsetCommitRequestTopic;
import org.apache.kafka.common.message.TxnOffsetCommitResponseData;
import org.apache.kafka.common.message.TxnOffsetCommitResponseData.TxnOffsetCommitResponsePartition;
import org.apache.kafka.common.message.TxnOffsetCommitResponseData.TxnOffsetCommitResponseTopic;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

public class Messages {
    static final Uuid TOPIC = new Uuid(0x0123456789abcdefL, 0x1032547698badcfeL);

    static void print(String name, int version, Message message) {
        byte[] bytes = MessageUtil.toVersionPrefixedBytes((short) version, message);
        byte[] body = java.util.Arrays.copyOfRange(bytes, 2, bytes.length);
        String text = Base64.getEncoder().encodeToString(body);
        System.out.println(name + " " + version + " " + text);
    }

    public static void main(String[] arguments) {
        apiVersions();
        txnOffsetCommit();
        deleteGroups();
    }

    static void apiVersions() {
        print("api_versions request", 5, new ApiVersionsRequestData()
                .setClientSoftwareName("apache-kafka-java")
                .setClientSoftwareVersion("4.4.0")
                .setClusterId("4L6g3nShT-eMCtK--X86sw")
                .setNodeId(7));
        print("api_versions request", 5, new ApiVersionsRequestData()
                .setClientSoftwareName("a")
                .setClientSoftwareVersion("1"));
        ApiVersionsResponseData full = new ApiVersionsResponseData()
                .setThrottleTimeMs(3)
                .setFinalizedFeaturesEpoch(8);
        full.apiKeys().add(new ApiVersion()
                .setApiKey((short) 18).setMinVersion((short) 0).setMaxVersion((short) 5));
        full.supportedFeatures().add(new SupportedFeatureKey()
                .setName("group.version").setMinVersion((short) 0).setMaxVersion((short) 1));
        full.finalizedFeatures().add(new FinalizedFeatureKey()
                .setName("group.version").setMaxVersionLevel((short) 1).setMinVersionLevel((short) 1));
        print("api_versions response", 5, full);
        print("api_versions response", 5, new ApiVersionsResponseData()
                .setErrorCode(Errors.REBOOTSTRAP_REQUIRED.code()));
    }

    static void txnOffsetCommit() {
        print("txn_offset_commit request", 6, new TxnOffsetCommitRequestData()
                .setTransactionalId("copy")
                .setGroupId("readers")
                .setProducerId(5)
                .setProducerEpoch((short) 3)
                .setGenerationIdOrMemberEpoch(4)
                .setMemberId("member")
                .setGroupInstanceId("instance")
                .setTopics(List.of(new TxnOffsetCommitRequestTopic()
                        .setTopicId(TOPIC)
                        .setName("not written")
                        .setPartitions(List.of(
                                new TxnOffsetCommitRequestPartition()
                                        .setPartitionIndex(1)
                                        .setCommittedOffset(17)
                                        .setCommittedLeaderEpoch(2)
                                        .setCommittedMetadata("meta"),
                                new TxnOffsetCommitRequestPartition()
                                        .setPartitionIndex(2)
                                        .setCommittedOffset(1L << 40)
                                        .setCommittedMetadata(null))))));
        print("txn_offset_commit response", 6, new TxnOffsetCommitResponseData()
                .setThrottleTimeMs(9)
                .setTopics(List.of(new TxnOffsetCommitResponseTopic()
                        .setTopicId(TOPIC)
                        .setPartitions(List.of(
                                new TxnOffsetCommitResponsePartition().setPartitionIndex(1),
                                new TxnOffsetCommitResponsePartition()
                                        .setPartitionIndex(2)
                                        .setErrorCode(Errors.STALE_MEMBER_EPOCH.code()))))));
    }

    static void deleteGroups() {
        print("delete_groups request", 3, new DeleteGroupsRequestData()
                .setGroupsNames(List.of("one", "two")));
        DeleteGroupsResponseData response = new DeleteGroupsResponseData().setThrottleTimeMs(1);
        response.results().add(new DeletableGroupResult().setGroupId("one"));
        response.results().add(new DeletableGroupResult()
                .setGroupId("two")
                .setErrorCode(Errors.GROUP_DELETION_FAILED.code())
                .setErrorMessage("why"));
        print("delete_groups response", 3, response);
    }
}
