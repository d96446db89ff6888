// Prints what Apache Kafka's own classes define, a line each, for comparison with our tables.
//
// java -cp JARS Definitions.java
//
// "api KEY MIN MAX forwarded|kept" as a broker announces it and treats it, "error CODE NAME retriable|final", "broker NAME" and
// "topic NAME" for configuration keys that are not internal.

import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.message.ApiMessageType.ListenerType;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

public class Definitions {
    public static void main(String[] arguments) {
        for (ApiKeys api : ApiKeys.apisForListener(ListenerType.BROKER)) {
            api.toApiVersionForApiResponse(false, ListenerType.BROKER).ifPresent(range ->
                    System.out.println("api " + range.apiKey() + " " + range.minVersion() + " "
                            + range.maxVersion() + (api.forwardable ? " forwarded" : " kept")));
        }
        for (Errors error : Errors.values()) {
            boolean retriable = error.exception() instanceof RetriableException;
            System.out.println("error " + error.code() + " " + error.name() + " "
                    + (retriable ? "retriable" : "final"));
        }
        for (Map.Entry<String, ConfigDef.ConfigKey> each
                : AbstractKafkaConfig.CONFIG_DEF.configKeys().entrySet()) {
            if (!each.getValue().internalConfig) {
                System.out.println("broker " + each.getKey());
            }
        }
        for (String name : LogConfig.nonInternalConfigNames()) {
            System.out.println("topic " + name);
        }
    }
}
