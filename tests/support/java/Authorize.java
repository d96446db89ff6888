import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.internals.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/** Decides by Kafka's StandardAuthorizer; each line is a command, its words between tabs. */
public class Authorize {
    record Client(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "judge"; }
        public int correlationId() { return 0; }

        static Client of(String principal, String host) throws Exception {
            return new Client(SecurityUtils.parseKafkaPrincipal(principal), InetAddress.getByName(host));
        }
    }

    static StandardAuthorizer fresh(String superUsers, String everyone) {
        StandardAuthorizer made = new StandardAuthorizer();
        made.configure(Map.of("super.users", superUsers, "allow.everyone.if.no.acl.found", everyone));
        made.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        made.completeInitialLoad();
        return made;
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        StandardAuthorizer authorizer = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] w = line.split("\t", -1);
            AuthorizationResult result;
            switch (w[0]) {
                case "new":
                    authorizer = fresh(w[1], w[2]);
                    continue;
                case "acl":
                    authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(
                        ResourceType.valueOf(w[1]), w[2], PatternType.valueOf(w[3]), w[4], w[5],
                        AclOperation.valueOf(w[6]), AclPermissionType.valueOf(w[7])));
                    continue;
                case "ask":
                    ResourcePattern resource =
                        new ResourcePattern(ResourceType.valueOf(w[4]), w[5], PatternType.LITERAL);
                    result = authorizer.authorize(Client.of(w[1], w[2]), List.of(
                        new Action(AclOperation.valueOf(w[3]), resource, 1, false, false))).get(0);
                    break;
                default:
                    result = authorizer.authorizeByResourceType(
                        Client.of(w[1], w[2]), AclOperation.valueOf(w[3]), ResourceType.valueOf(w[4]));
            }
            answers.append(result == AuthorizationResult.ALLOWED ? '1' : '0');
        }
        System.out.println("answers " + answers);
    }
}
