// Logs in by every way that it reads, all at once, and prints what Apache Kafka's client says of each: a line "CASE<tab>ok", or the
// classes and texts of its error and of what caused it.
//
// java -cp JARS Logins < ways
//
// A way is its settings, a line "CASE<tab>KEY<tab>VALUE" each. The token of OAUTHBEARER is an option of its login line.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

public class Logins {
    private static final int AT_ONCE = 12;
    private static final String WAIT_MS = "6000";

    public static void main(String[] arguments) throws Exception {
        Map<String, Properties> ways = read();
        ExecutorService threads = Executors.newFixedThreadPool(AT_ONCE);
        Map<String, Future<String>> said = new LinkedHashMap<>();
        ways.forEach((name, way) -> said.put(name, threads.submit(() -> said(way))));
        for (Map.Entry<String, Future<String>> each : said.entrySet()) {
            System.out.println(each.getKey() + "\t" + each.getValue().get());
        }
        threads.shutdown();
    }

    private static Map<String, Properties> read() throws IOException {
        Map<String, Properties> found = new LinkedHashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", 3);
            found.computeIfAbsent(words[0], name -> new Properties()).put(words[1], words[2]);
        }
        return found;
    }

    private static String said(Properties way) {
        way.put("request.timeout.ms", WAIT_MS);
        way.put("default.api.timeout.ms", WAIT_MS);
        try (Admin admin = Admin.create(way)) {
            admin.describeCluster().nodes().get();
            return "ok";
        } catch (ExecutionException error) {
            return chain(error.getCause());
        } catch (Exception error) {
            return chain(error);
        }
    }

    private static String chain(Throwable error) {
        StringBuilder found = new StringBuilder();
        for (Throwable each = error; each != null; each = each.getCause()) {
            found.append(found.length() == 0 ? "" : " <- ").append(each.getClass().getSimpleName())
                    .append(": ").append(String.valueOf(each.getMessage()).replaceAll("\\s+", " "));
        }
        return found.toString();
    }

    /** Hands out the token of the login line. */
    public static class Tokens implements AuthenticateCallbackHandler {
        private String token;

        @Override
        public void configure(Map<String, ?> settings, String mechanism, List<AppConfigurationEntry> lines) {
            token = (String) lines.get(0).getOptions().get("token");
        }

        @Override
        public void handle(Callback[] callbacks) {
            for (Callback each : callbacks) {
                if (each instanceof OAuthBearerTokenCallback) {
                    ((OAuthBearerTokenCallback) each).token(new Token(token));
                }
            }
        }

        @Override
        public void close() {
        }
    }

    private static class Token implements OAuthBearerToken {
        private final String value;

        Token(String value) {
            this.value = value;
        }

        @Override
        public String value() {
            return value;
        }

        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            return System.currentTimeMillis() + 300_000;
        }

        @Override
        public String principalName() {
            return "alice";
        }

        @Override
        public Long startTimeMs() {
            return null;
        }
    }
}
